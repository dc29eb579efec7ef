package producers

import "context"

// lanes admits commands: readers overlap, everything else takes its turn.
type lanes struct{}

func newLanes() *lanes { return &lanes{} }

// enter asks for admission and never blocks.
func (l *lanes) enter(reader bool) *ticket { return &ticket{} }

// ticket is a place in a lane.
type ticket struct{ ahead int }

// wait returns once the ticket is admitted, or with ctx's error; then it has left.
func (t *ticket) wait(ctx context.Context) error { return nil }

// admitted reports whether the ticket is in.
func (t *ticket) admitted() bool { return true }

// leave gives the place up. It may be called more than once, from any goroutine.
func (t *ticket) leave() {}
