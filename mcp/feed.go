package mcp

import (
	"strings"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// updateEvery bounds how often a client hears that a resource changed.
const updateEvery = 250 * time.Millisecond

// Feed is the fold behind what clients are told unasked. It is driven by an
// engine; [Feed.Apply] never blocks.
type Feed struct {
	tails *tails

	mu       sync.Mutex
	watchers map[*watcher]bool
}

// watcher tells one client which of its subscribed resources changed.
type watcher struct {
	peer    *peer
	changed chan struct{} // holds one token while dirty is not empty

	mu    sync.Mutex
	dirty map[string]bool // by URI
}

// NewFeed returns a feed without clients.
func NewFeed() *Feed { return &Feed{tails: newTails(), watchers: map[*watcher]bool{}} }

// Apply implements projections.Fold.
func (f *Feed) Apply(e events.Event) {
	f.tails.apply(e)
	var uri string
	switch e.Class() {
	case events.ClassOutput, events.ClassExecution:
		uri = outputURI(e.Subject)
	case events.ClassSession:
		uri = transcriptURI(e.Session)
	case events.ClassMailbox:
		uri = mailboxURI(e.Owner)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) == 0 {
		return
	}
	uris := append(transcripts(e), uri)
	for w := range f.watchers {
		for _, uri := range uris {
			w.mark(uri)
		}
	}
}

// transcripts are the addresses of the transcripts that the event has a row in,
// or changes one of: its owner's, those of the owners above it, and people's.
func transcripts(e events.Event) []string {
	if e.Class() != events.ClassExecution && e.Kind() != events.KindPosted {
		return nil
	}
	uris := []string{transcriptURI(e.Session), ownedTranscriptURI(e.Session, events.RootOwner)}
	for owner := e.Owner; owner != ""; owner = owner[:max(strings.LastIndexByte(owner, '/'), 0)] {
		uris = append(uris, ownedTranscriptURI(e.Session, owner))
	}
	return uris
}

// watch tells the client about its resources until stop is called. A nil feed
// has nothing to tell.
func (f *Feed) watch(p *peer) (stop func()) {
	if f == nil {
		return func() {}
	}
	w := &watcher{peer: p, changed: make(chan struct{}, 1), dirty: map[string]bool{}}
	f.mu.Lock()
	f.watchers[w] = true
	f.mu.Unlock()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.run(done)
	}()
	return func() {
		f.mu.Lock()
		delete(f.watchers, w)
		f.mu.Unlock()
		close(done)
		<-ended
	}
}

func (w *watcher) mark(uri string) {
	if !w.peer.IsSubscribedToResource(uri) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[uri] = true
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watcher) take() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := w.dirty
	w.dirty = map[string]bool{}
	return dirty
}

// run sends what changed, and then rests a moment.
func (w *watcher) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-w.changed:
		}
		w.peer.out.await() // meanwhile nothing is marked twice
		for uri := range w.take() {
			w.peer.out.put(notificationLine("notifications/resources/updated", map[string]string{"uri": uri}))
		}
		select {
		case <-done:
			return
		case <-time.After(updateEvery):
		}
	}
}
