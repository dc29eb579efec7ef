package look

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// Scene is everything that can be looked at, at one moment: the ledger as it is
// now, or as it was. Read its folds inside View.
type Scene struct {
	*replay.Engine
	Processes   *projections.Processes
	Sessions    *projections.Sessions
	Mailbox     *projections.Mailbox
	Breadcrumbs *projections.Breadcrumbs
	moment      *moment
	tails       *tails
}

// NewScene returns the scene before the first event.
func NewScene() *Scene {
	s := &Scene{
		Processes: projections.NewProcesses(), Sessions: projections.NewSessions(),
		Mailbox: projections.NewMailbox(), Breadcrumbs: projections.NewBreadcrumbs(),
		moment: &moment{}, tails: &tails{of: map[string]*tail{}},
	}
	s.Engine = replay.NewEngine(s.Processes, s.Sessions, s.Mailbox, s.Breadcrumbs, s.moment, s.tails)
	return s
}

// Moment is the time of the last lifecycle event that the scene holds. Call it
// inside View.
func (s *Scene) Moment() time.Time { return s.moment.at }

// moment is the fold of the newest time.
type moment struct {
	seq uint64
	at  time.Time
}

// Apply implements projections.Fold.
func (m *moment) Apply(e events.Event) {
	if e.Body == nil || e.Class() == events.ClassOutput || e.Seq <= m.seq {
		return
	}
	m.seq = e.Seq
	if e.Time.After(m.at) {
		m.at = e.Time // clocks step; a moment only goes on
	}
}

// tailBytes is how much of a live command's output stays at hand for its last
// lines. A flooding command costs no more than a quiet one.
const tailBytes = 4 << 10

// tails is the fold of last lines: the end of the output of what is live.
type tails struct{ of map[string]*tail }

type tail struct {
	data []byte
	end  int64
}

// Apply implements projections.Fold.
func (t *tails) Apply(e events.Event) {
	switch b := e.Body.(type) {
	case events.Settled, events.Refused:
		delete(t.of, e.Subject)
	case events.Output:
		v := t.of[e.Subject]
		if v == nil {
			v = &tail{}
			t.of[e.Subject] = v
		}
		v.add(b)
	}
}

func (t *tail) add(o events.Output) {
	if o.End() <= t.end {
		return
	}
	data := o.Data
	if over := t.end - o.Offset; over > 0 {
		data = data[over:]
	}
	if len(data) > tailBytes {
		data = data[len(data)-tailBytes:]
	}
	t.data = append(t.data, data...)
	if len(t.data) > 2*tailBytes {
		t.data = bytes.Clone(t.data[len(t.data)-tailBytes:])
	}
	t.end = o.End()
}

// LastLines is the last n lines of a live execution, as far as its output was
// followed. Call it inside View.
func (s *Scene) LastLines(execution string, n int) []string {
	v := s.tails.of[execution]
	if v == nil {
		return nil
	}
	return LastLines(Text(v.data), n)
}

// Past makes scenes of earlier moments, and keeps the last few: dragging a
// slider forward costs only what lies between.
type Past struct {
	ledger *ledger.Ledger
	mu     sync.Mutex
	scenes []*Scene // the last used first
}

// pastScenes is how many moments are kept.
const pastScenes = 3

// NewPast returns the past of a ledger.
func NewPast(l *ledger.Ledger) *Past { return &Past{ledger: l} }

// At is the scene as of a lifecycle sequence. Nobody changes it until the next
// call, so look at it inside the function only; calls take turns.
func (p *Past) At(ctx context.Context, seq uint64, look func(*Scene) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.nearest(seq)
	if err := s.RunTo(ctx, p.ledger, events.Filter{}, seq); err != nil {
		return fmt.Errorf("going back to event %d: %w", seq, err)
	}
	p.scenes = append([]*Scene{s}, p.scenes...)
	if len(p.scenes) > pastScenes {
		p.scenes = p.scenes[:pastScenes]
	}
	return look(s)
}

// nearest takes out the kept scene that is the least way before seq, or makes a
// new one.
func (p *Past) nearest(seq uint64) *Scene {
	best := -1
	for i, s := range p.scenes {
		if s.Seq() <= seq && (best < 0 || s.Seq() > p.scenes[best].Seq()) {
			best = i
		}
	}
	if best < 0 {
		return NewScene()
	}
	s := p.scenes[best]
	p.scenes = append(p.scenes[:best], p.scenes[best+1:]...)
	return s
}
