// Command follow prints the events of a ledger as JSON lines: first those that
// it has not seen, then the live ones. The cursor is its own, in a file.
//
//	eval "$(yieldlog subscriber --env)"
//	go run . 'yieldlog.*.execution.*.settled' settled.cursor
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

const stream = "LIFECYCLE"

type follower struct {
	js         jetstream.JetStream
	subject    string
	cursorFile string
	cursor     uint64 // the last sequence that was printed
	since      time.Time
}

func main() {
	once := flag.Bool("once", false, "end when there is nothing more")
	since := flag.String("since", "", "begin at this time (RFC 3339) when there is no cursor yet")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: follow [-once] [-since TIME] SUBJECT CURSOR_FILE")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, flag.Arg(0), flag.Arg(1), *since, *once); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, subject, cursorFile, since string, once bool) error {
	reconnected := make(chan struct{}, 1)
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD")),
		nats.MaxReconnects(-1), nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case reconnected <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return err
	}
	defer nc.Close()
	f := &follower{subject: subject, cursorFile: cursorFile}
	if f.js, err = jetstream.New(nc); err != nil {
		return err
	}
	if err := f.begin(since); err != nil {
		return err
	}
	// Subscribe first: what is stored while the past is read waits here.
	live := make(chan *nats.Msg, 1<<16)
	if _, err := nc.ChanSubscribe(subject, live); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	if err := f.catchUp(ctx); err != nil || once {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected: // what was stored meanwhile was not told
			err = f.catchUp(ctx)
		case m := <-live:
			seq, parseErr := strconv.ParseUint(m.Header.Get(nats.JSSequence), 10, 64)
			if parseErr != nil || seq <= f.cursor {
				continue
			}
			err = f.handle(seq, m.Header, m.Data)
		}
		if err != nil {
			return err
		}
	}
}

// begin reads the cursor, or the time to begin at when there is none yet.
func (f *follower) begin(since string) error {
	data, err := os.ReadFile(f.cursorFile)
	if err == nil {
		f.cursor, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) || since == "" {
		return nil
	}
	f.since, err = time.Parse(time.RFC3339Nano, since)
	return err
}

// catchUp reads what is after the cursor. A host that is starting does not
// answer yet.
func (f *follower) catchUp(ctx context.Context) error {
	for {
		err := f.readBatches(ctx)
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, nats.ErrTimeout) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (f *follower) readBatches(ctx context.Context) error {
	for {
		from := jetstreamext.GetBatchSeq(f.cursor + 1)
		if f.cursor == 0 && !f.since.IsZero() {
			from = jetstreamext.GetBatchStartTime(f.since)
		}
		batch, err := jetstreamext.GetBatch(ctx, f.js, stream, 256, from, jetstreamext.GetBatchSubject(f.subject))
		if err != nil {
			return err
		}
		got := 0
		for m, err := range batch {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				return nil
			}
			if err != nil {
				return err
			}
			got++
			if err := f.handle(m.Sequence, m.Header, m.Data); err != nil {
				return err
			}
		}
		if got == 0 { // and nobody said that there is none
			return nats.ErrTimeout
		}
	}
}

// handle prints an event, and then keeps the cursor: an event is never missed,
// and comes twice only after a crash in between.
func (f *follower) handle(seq uint64, header nats.Header, data []byte) error {
	e, err := toCloudEvent(header, data)
	if err != nil {
		return fmt.Errorf("sequence %d: %w", seq, err)
	}
	line, err := json.Marshal(toLine(seq, e))
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	f.cursor = seq
	next := f.cursorFile + ".new"
	if err := os.WriteFile(next, []byte(strconv.FormatUint(seq, 10)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.cursorFile)
}

type line struct {
	Seq     uint64          `json:"seq"`
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Subject string          `json:"subject"`
	Body    json.RawMessage `json:"body"`
}

func toLine(seq uint64, e *cloudevents.Event) line {
	return line{Seq: seq, Type: e.Type(), ID: e.ID(), Subject: e.Subject(), Body: e.Data()}
}
