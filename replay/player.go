package replay

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// Moment is a point of a history. Of several fields that are set, the first
// that is reached counts; the zero Moment is the beginning.
type Moment struct {
	// Seq is a lifecycle sequence, Time a wall clock, At a time since the first
	// frame, and ID an event.
	Seq  uint64
	Time time.Time
	At   time.Duration
	ID   string
}

// Reached reports whether the frame is at or after the moment.
func (m Moment) Reached(f Frame) bool {
	return m == Moment{} ||
		m.Seq > 0 && f.Class() != events.ClassOutput && f.Seq >= m.Seq ||
		!m.Time.IsZero() && !f.Time.Before(m.Time) ||
		m.At > 0 && f.At >= m.At ||
		m.ID != "" && f.ID == m.ID
}

// Player shows frames with the timing that they had. The fields are set before
// [Player.Play]; the methods may be called while it plays.
type Player struct {
	// Speed is how much faster than it was; 0 is 1.
	Speed float64
	// IdleLimit is the longest pause between two frames as it was recorded; 0
	// is no limit.
	IdleLimit time.Duration
	// From is where to begin. What is before it is shown without pause.
	From Moment
	// Instant shows everything without pause.
	Instant bool

	mu     sync.Mutex
	paused bool
	steps  int
	wake   chan struct{}
}

// Toggle holds the player before its next frame, or lets it go on.
func (p *Player) Toggle() { p.change(func() { p.paused = !p.paused }) }

// Step shows the next frame at once, also while paused.
func (p *Player) Step() { p.change(func() { p.steps++ }) }

// SetSpeed changes the speed.
func (p *Player) SetSpeed(speed float64) { p.change(func() { p.Speed = speed }) }

func (p *Player) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// Play shows the frames until they end, show fails, or the context ends, and
// returns that error.
func (p *Player) Play(ctx context.Context, frames iter.Seq2[Frame, error], show func(Frame) error) error {
	var last time.Duration
	playing := false
	for f, err := range frames {
		if err != nil {
			return err
		}
		if playing && !p.Instant {
			if err := p.wait(ctx, f.At-last); err != nil {
				return err
			}
		}
		playing = playing || p.From.Reached(f)
		last = f.At
		if err := show(f); err != nil {
			return fmt.Errorf("showing event %s: %w", f.ID, err)
		}
	}
	return nil
}

// wait lets the recorded time d pass.
func (p *Player) wait(ctx context.Context, d time.Duration) error {
	if p.IdleLimit > 0 {
		d = min(d, p.IdleLimit)
	}
	for {
		step, paused, speed, changed := p.state()
		if step {
			return nil
		}
		began := time.Now()
		timer := time.NewTimer(time.Duration(float64(d) / speed))
		if paused {
			timer.Stop()
		}
		select {
		case <-timer.C:
			return nil
		case <-changed:
			timer.Stop()
			if !paused {
				d -= time.Duration(float64(time.Since(began)) * speed)
			}
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("playing: %w", context.Cause(ctx))
		}
	}
}

// state is what the player shall do now, and a channel that is closed when that
// changes. A step is taken by asking.
func (p *Player) state() (step, paused bool, speed float64, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps > 0 {
		p.steps--
		return true, false, 1, nil
	}
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	speed = p.Speed
	if speed <= 0 {
		speed = 1
	}
	return false, p.paused, speed, p.wake
}
