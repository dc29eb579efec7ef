package look

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The timeline's geometry, in units of its view box.
const (
	TimelineWidth = 1000.0
	laneHeight    = 14.0
	laneGap       = 4.0
	groupGap      = 22.0
	axisHeight    = 20.0
	minBar        = 2.5
	maxLanes      = 40
)

// Timeline is a drawn session: a group for each owner, in it as many lanes as
// executions overlapped, in them a bar for each execution.
type Timeline struct {
	From, To time.Time
	Height   float64
	Groups   []Group
	Ticks    []Tick
}

// Group is the lanes of one owner.
type Group struct {
	Owner string
	Y     float64
	Bars  []Bar
}

// Bar is one execution. X, Y, W and H are in units of the view box.
type Bar struct {
	Row
	X, Y, W, H float64
	// Label says in words what the bar shows.
	Label string
}

// Tick is a mark on the axis of time.
type Tick struct {
	X  float64
	At time.Time
	// Text is the time since the beginning.
	Text string
}

// NewTimeline draws rows, in any order, as of a moment.
func NewTimeline(rows []Row, now time.Time) Timeline {
	var t Timeline
	if len(rows) == 0 {
		return t
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return a.Since.Compare(b.Since) })
	t.From, t.To = rows[0].Since, rows[0].Since
	for _, r := range rows {
		if end := r.end(now); end.After(t.To) {
			t.To = end
		}
	}
	if t.To.Sub(t.From) < time.Second {
		t.To = t.From.Add(time.Second)
	}
	t.Height = axisHeight
	for _, owner := range owners(rows) {
		t.group(owner, rows, now)
	}
	t.ticks()
	return t
}

// end is where the row's bar ends.
func (r Row) end(now time.Time) time.Time {
	switch {
	case r.Live:
		return now
	case r.Took > 0:
		return r.Since.Add(r.Took)
	}
	return r.Ended
}

func owners(rows []Row) []string {
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.Owner) {
			names = append(names, r.Owner)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a, b) })
	return names
}

// group puts each of an owner's rows into the first lane that is free.
func (t *Timeline) group(owner string, rows []Row, now time.Time) {
	t.Height += groupGap
	g := Group{Owner: owner, Y: t.Height - 7}
	var busy []float64
	scale := TimelineWidth / float64(t.To.Sub(t.From))
	for _, r := range rows {
		if r.Owner != owner {
			continue
		}
		x := float64(r.Since.Sub(t.From)) * scale
		w := max(float64(r.end(now).Sub(r.Since))*scale, minBar)
		x = min(x, TimelineWidth-w)
		lane := slices.IndexFunc(busy, func(end float64) bool { return end <= x })
		switch {
		case lane < 0 && len(busy) < maxLanes:
			lane = len(busy)
			busy = append(busy, 0)
		case lane < 0:
			lane = maxLanes - 1
		}
		busy[lane] = x + w + 0.5
		g.Bars = append(g.Bars, Bar{
			Row: r, X: x, Y: t.Height + float64(lane)*(laneHeight+laneGap), W: w, H: laneHeight, Label: r.Label(),
		})
	}
	t.Height += float64(len(busy)) * (laneHeight + laneGap)
	t.Groups = append(t.Groups, g)
}

// Label is the row in words.
func (r Row) Label() string {
	s := r.Title + ": " + r.Mark.Word
	if r.Note != "" {
		s += ", " + r.Note
	}
	if r.Took > 0 {
		s += ", " + Duration(r.Took)
	}
	return s
}

// steps are the distances between ticks that people can read.
var steps = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

func (t *Timeline) ticks() {
	span := t.To.Sub(t.From)
	step := steps[len(steps)-1]
	for _, s := range steps {
		if span/s <= 8 {
			step = s
			break
		}
	}
	for step*20 < span {
		step *= 7
	}
	for d := time.Duration(0); d <= span; d += step {
		x := float64(d) / float64(span) * TimelineWidth
		if x > TimelineWidth-40 {
			break // its text has no room
		}
		t.Ticks = append(t.Ticks, Tick{X: x, At: t.From.Add(d), Text: tickText(d)})
	}
}

// tickText is a round duration, without its zeros.
func tickText(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%(24*time.Hour) == 0:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	text := d.String() // 1h0m0s, 5m0s, 500ms
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
