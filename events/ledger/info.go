package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Info describes an open ledger.
type Info struct {
	Dir string `json:"dir"`
	// Role is "host" when this process runs the server, or "joined".
	Role string `json:"role"`
	// Host is the process id of the host, and URL where it listens.
	Host int    `json:"host"`
	URL  string `json:"url"`
	// LastSeq is the sequence of the newest lifecycle event.
	LastSeq uint64 `json:"last_seq"`
	// Bytes is the size of all streams, MaxBytes their limit, and Free what the
	// disk still takes.
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	Free     int64 `json:"free"`
	// Streams is the lifecycle stream and the output segments, oldest first. A
	// segment that is being packed stands there beside its unfinished twin.
	Streams []StreamInfo `json:"streams"`
}

// StreamInfo describes one stream.
type StreamInfo struct {
	Name     string    `json:"name"`
	Messages uint64    `json:"messages"`
	Bytes    int64     `json:"bytes"`
	FirstSeq uint64    `json:"first_seq"`
	LastSeq  uint64    `json:"last_seq"`
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"`
	// Sealed is set for a segment that takes no more output.
	Sealed bool `json:"sealed,omitempty"`
}

// Info asks for the state of the ledger.
func (l *Ledger) Info(ctx context.Context) (Info, error) {
	i := Info{Dir: l.opts.Dir, Role: "joined", MaxBytes: l.opts.MaxBytes}
	err := l.wake(ctx)
	if err != nil {
		return i, err
	}
	if i.Streams, err = patiently(ctx, l, l.streams); err != nil {
		return i, fmt.Errorf("listing the streams: %w", err)
	}
	for _, s := range i.Streams {
		i.Bytes += s.Bytes
		if s.Name == lifecycleStream {
			i.LastSeq = s.LastSeq
		}
	}
	if l.store.dial.hosting() != nil {
		i.Role = "host"
	}
	var ep endpoint
	if err := readJSON(l.dir().endpoint(), &ep); err == nil { // none during a takeover
		i.Host, i.URL = ep.PID, ep.URL
	}
	i.Free, err = freeBytes(l.opts.Dir)
	return i, err
}

func (l *Ledger) streams(ctx context.Context) ([]StreamInfo, error) {
	var all []StreamInfo
	list := l.store.js.ListStreams(ctx)
	for s := range list.Info() {
		all = append(all, StreamInfo{
			Name: s.Config.Name, Sealed: s.Config.Sealed,
			Messages: s.State.Msgs, Bytes: int64(s.State.Bytes),
			FirstSeq: s.State.FirstSeq, LastSeq: s.State.LastSeq, First: s.State.FirstTime, Last: s.State.LastTime,
		})
	}
	slices.SortFunc(all, func(a, b StreamInfo) int {
		return cmp.Or(cmp.Compare(segmentNumber(a.Name), segmentNumber(b.Name)), strings.Compare(a.Name, b.Name))
	})
	return all, list.Err()
}
