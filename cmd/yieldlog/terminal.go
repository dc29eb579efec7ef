package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
)

// A terminal joins the one command of exec with this process's streams and
// signals. Its goroutines end with the command, except the one that waits for
// input, which ends with the process.
type terminal struct {
	app  *app
	live *live
	// id is the execution; it is set before running is closed.
	id      string
	running chan struct{}
	more    chan struct{} // there is output to print
	over    chan struct{} // the call has returned; its caller closes it
	printed int64         // bytes of output, when print has returned
}

func newTerminal(a *app, v *live) *terminal {
	return &terminal{app: a, live: v, running: make(chan struct{}), more: make(chan struct{}, 1), over: make(chan struct{})}
}

// see learns from the ledger that the command runs, and that it wrote.
func (t *terminal) see(e events.Event) {
	switch e.Kind() {
	case events.KindSpawned:
		t.id = e.Subject
		close(t.running) // the session runs one command
	case events.KindStdout, events.KindStderr, events.KindTTY:
		wake(t.more)
	}
}

// print prints the output as it comes, and returns when all is printed.
func (t *terminal) print(ctx context.Context) error {
	select {
	case <-t.running:
	case <-t.over:
		select {
		case <-t.running:
		default:
			return nil // it never ran
		}
	}
	go t.passInput()
	p := &printer{ledger: t.live.ledger, id: named{t.live.session.ID(), t.id}, out: t.app.out, err: t.app.err}
	ended := make(chan error)
	go func() { <-t.over; close(ended) }()
	err := p.printUntil(ctx, t.more, ended)
	t.printed = p.printed
	return err
}

// inputChunk is how much input is handed over at a time, in bytes: each is an
// event of the ledger.
const inputChunk = 256 << 10

// passInput hands the standard input to the command, and its end.
func (t *terminal) passInput() {
	buf := make([]byte, inputChunk)
	for {
		n, err := t.app.in.Read(buf)
		in := producers.Input{Data: append([]byte(nil), buf[:n]...), Close: err != nil, Piped: true}
		if t.write(in) != nil || err != nil {
			return
		}
	}
}

// write hands input over. A command that leaves too much unread makes it wait.
func (t *terminal) write(in producers.Input) error {
	for {
		err := t.live.session.Write(events.RootOwner, t.id, in)
		if !errors.Is(err, producers.ErrInput) {
			return err
		}
		select {
		case <-t.over:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// signalGrace is what a signalled command has before it is killed.
const signalGrace = 10 * time.Second

// passSignals hands signals on. One that comes before the command runs cancels it.
func (t *terminal) passSignals(ctx context.Context, cancel func(), signals <-chan os.Signal) {
	for {
		select {
		case <-t.over:
			return
		case s := <-signals:
			select {
			case <-t.running:
				o := producers.StopOptions{Signal: signalNames[s], ForceAfter: signalGrace}
				go func() {
					if _, err := t.live.session.Stop(ctx, events.RootOwner, t.id, o); err != nil {
						t.app.logger().Warn("passing a signal on", "signal", o.Signal, "error", err)
					}
				}()
			default:
				cancel()
			}
		}
	}
}

var signalNames = map[os.Signal]string{
	os.Interrupt: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT",
}
