package replay_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

// recording is a history and the output of its executions.
type recording struct {
	history
	output map[string][]events.Event
}

func (r recording) Output(_ context.Context, _, execution string, from, to int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for _, e := range r.output[execution] {
			o := e.Body.(events.Output)
			if o.Offset >= from && (to < 0 || o.End() <= to) && !yield(e, nil) {
				return
			}
		}
	}
}

// evening is two executions side by side: one that yields, one that answers.
func evening() recording {
	r := recording{output: map[string][]events.Event{}}
	start := time.Unix(1_800_000_000, 0).UTC()
	life := func(ms int, execution string, b events.Body) {
		r.history = append(r.history, events.Event{
			Seq: uint64(len(r.history) + 1), ID: "L", Time: start.Add(time.Duration(ms) * time.Millisecond),
			Session: "s", Owner: "/root", Subject: execution, Body: b,
		})
	}
	ends := map[string]int64{}
	emit := func(ms int, execution string, stream events.Kind, text string) {
		r.output[execution] = append(r.output[execution], events.Event{
			ID: "O", Time: start.Add(time.Duration(ms) * time.Millisecond), Session: "s", Owner: "/root", Subject: execution,
			Body: events.Output{Stream: stream, Offset: ends[execution], Data: []byte(text)},
		})
		ends[execution] += int64(len(text))
	}
	exit := func(n int, offset int64) events.Settled {
		return events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess,
			ExitCode: &n, Offset: offset, DurationMS: 1000,
		}
	}
	life(0, "s", events.Opened{Program: "mcp"})
	life(100, "build1", events.Requested{Command: "make -j2", Name: "build", Cwd: "/src"})
	life(110, "build1", events.Spawned{PID: 1})
	emit(200, "build1", events.KindStdout, "cc a\ncc ")
	life(300, "build1", events.Yielded{Offset: 8})
	life(400, "fast01", events.Requested{Command: "ls", Cwd: "/src"})
	life(410, "fast01", events.Spawned{PID: 2})
	emit(420, "fast01", events.KindStdout, "caf\xc3")
	emit(425, "fast01", events.KindStdout, "\xa9\n")
	life(430, "fast01", exit(0, 6))
	emit(250, "build1", events.KindStdout, "b\n") // its clock stepped back
	emit(5000, "build1", events.KindStderr, "warning\n")
	life(5100, "build1", exit(0, 18))
	return r
}

func TestTimelineAndText(t *testing.T) {
	var got bytes.Buffer
	w := replay.TextWriter{W: &got, Labelled: true}
	at := time.Duration(-1)
	for f, err := range replay.Timeline(t.Context(), evening(), events.Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f.At < at {
			t.Errorf("time goes back from %s to %s", at, f.At)
		}
		at = f.At
		if err := w.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	want := `session opened by mcp
[build] $ make -j2
[build] cc a
[build] cc 
[build] ● yielded, goes on in the background
[build] b
[fast01] $ ls
[fast01] café
[fast01] ● completed (exit code 0)
[build] warning
[build] ● completed (exit code 0)
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAsciicast(t *testing.T) {
	var got bytes.Buffer
	frames := replay.Timeline(t.Context(), evening(), events.Filter{ID: "build1"}, 0)
	if err := replay.WriteAsciicast(&got, frames, replay.Cast{Title: "build", IdleLimit: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	want := `{"version":3,"term":{"cols":80,"rows":24},"timestamp":1800000000,"command":"make -j2","title":"build"}
[0.1,"o","cc a\r\ncc "]
[0.1,"m","● yielded, goes on in the background"]
[0,"o","b\r\n"]
[2,"o","warning\r\n"]
[0.1,"x","0"]
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAsciicastKeepsCharactersWhole(t *testing.T) {
	var got bytes.Buffer
	frames := replay.Timeline(t.Context(), evening(), events.Filter{ID: "fast01"}, 0)
	if err := replay.WriteAsciicast(&got, frames, replay.Cast{}); err != nil {
		t.Fatal(err)
	}
	if s := got.String(); !strings.Contains(s, `[0.02,"o","caf"]`) || !strings.Contains(s, `[0.005,"o","é\r\n"]`) {
		t.Error(s)
	}
}

func TestMarkdown(t *testing.T) {
	var got bytes.Buffer
	if err := replay.WriteMarkdown(t.Context(), &got, evening(), events.Filter{Session: "s"}, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Session s\n", "2 executions: 2 completed", "## `build`\n\n```sh\nmake -j2\n```\n",
		"stderr:\n\n```\nwarning\n```", "● Background command \"build\" completed (exit code 0)", "café",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in\n%s", want, got.String())
		}
	}
	coloured := evening()
	build := coloured.output["build1"]
	build[len(build)-1].Body = events.Output{Stream: events.KindStderr, Offset: 10, Data: []byte("\x1b[mwarn\n")}
	got.Reset()
	if err := replay.WriteMarkdown(t.Context(), &got, coloured, events.Filter{Session: "s"}, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), "stderr:\n\n```\nwarn\n```") {
		t.Errorf("escape sequences stay in\n%s", got.String())
	}
}

func TestEventLines(t *testing.T) {
	var got bytes.Buffer
	if err := replay.WriteEventLines(&got, replay.Timeline(t.Context(), evening(), events.Filter{ID: "fast01"}, 0)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[2], `"class":"output","kind":"stdout","subject":"fast01","execution":"fast01","body":{"offset":0,"data":"Y2Fmww=="}}`) {
		t.Error(got.String())
	}
}

// play returns when each frame was shown, by the player's clock.
func play(t *testing.T, p *replay.Player) (shown []time.Duration) {
	start := time.Now()
	frames := replay.Timeline(t.Context(), evening(), events.Filter{ID: "build1"}, 0)
	if err := p.Play(t.Context(), frames, func(replay.Frame) error {
		shown = append(shown, time.Since(start))
		return nil
	}); err != nil {
		t.Error(err)
	}
	return shown
}

func TestPlayer(t *testing.T) {
	ms := func(n ...int) (d []time.Duration) {
		for _, n := range n {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	for name, c := range map[string]struct {
		player *replay.Player
		want   []time.Duration
	}{
		"as it was":  {&replay.Player{}, ms(0, 10, 100, 200, 200, 4900, 5000)},
		"faster":     {&replay.Player{Speed: 10}, ms(0, 1, 10, 20, 20, 490, 500)},
		"idle limit": {&replay.Player{IdleLimit: time.Second}, ms(0, 10, 100, 200, 200, 1200, 1300)},
		"from 4":     {&replay.Player{From: replay.Moment{Seq: 4}}, ms(0, 0, 0, 0, 0, 4700, 4800)},
		"instant":    {&replay.Player{Instant: true}, ms(0, 0, 0, 0, 0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(c.want, play(t, c.player)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestPlayerPausesAndSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &replay.Player{}
		var shown []time.Duration
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			shown = play(t, p)
		}()
		time.Sleep(150 * time.Millisecond) // the fake clock's
		p.Toggle()
		time.Sleep(time.Hour)
		p.Step() // the yield
		p.Step() // and the output behind it
		time.Sleep(time.Hour)
		p.Toggle()
		<-ended
		step := time.Hour + 150*time.Millisecond
		want := []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, step, step, step + time.Hour + 4700*time.Millisecond, step + time.Hour + 4800*time.Millisecond}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPlayerIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &replay.Player{}
	p.Toggle()
	err := p.Play(ctx, replay.Timeline(ctx, evening(), events.Filter{}, 0), func(replay.Frame) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
