package mcp

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
)

const (
	// channelCapability is Claude Code's name for notifications that start a turn.
	channelCapability = "claude/channel"
	wakeLogger        = "yieldlog.mailbox"
	// wakeText is the whole of a wake but for the notices.
	wakeText = "Background event. This is not a message from the user. The mailbox tool has the details."
	// wakeEvery bounds how often the agent is offered a turn: what comes sooner
	// is offered together.
	wakeEvery = time.Second
	// wakeNotices is how many notices a wake carries, and dueMost how many
	// records are kept for it before those that were read are left out.
	wakeNotices, dueMost = 10, 4096
)

// wakes offers the root agent a turn when a command of it ended by itself, or a
// monitor has lines, and the agent was not told yet. The offers are no part of
// the ledger, and nothing depends on them: the mail stays unread until it is read.
//
// While a call of root is in flight nothing is offered. When the last one was
// answered, what came meanwhile is offered once; a call that failed or was given
// up offers nothing by itself.
type wakes struct {
	server *Server

	mu    sync.Mutex
	peers map[*peer]bool
	busy  int             // root's calls in flight
	due   map[string]bool // records that were not offered yet
	last  time.Time       // of the last offer
	later *time.Timer     // the offer that waits for its time, or nil
}

func (w *wakes) join(p *peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers[p] = true
}

// leave ends the offers to a client. It may have left already.
func (w *wakes) leave(p *peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.peers, p)
}

// mailed takes a record that became unread.
func (w *wakes) mailed(m producers.Mail) {
	if m.Owner != events.RootOwner || !m.Unasked {
		return
	}
	w.mu.Lock()
	w.due[m.ID] = true
	idle, many := w.busy == 0, len(w.due) > dueMost
	w.mu.Unlock()
	switch {
	case idle:
		w.offer()
	case many:
		w.forget()
	}
}

// forget leaves out of what is due what was read meanwhile.
func (w *wakes) forget() {
	unread := map[string]bool{}
	for _, m := range w.server.opts.Session.Unread(events.RootOwner) {
		unread[m.ID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.due, func(id string, _ bool) bool { return !unread[id] })
}

// begin notes a call, and its end.
func (w *wakes) begin(c *call) {
	if c.args.owner() != events.RootOwner {
		return
	}
	w.mu.Lock()
	w.busy++
	w.mu.Unlock()
	c.after = append(c.after, func(written bool) {
		w.mu.Lock()
		w.busy--
		idle := w.busy == 0 && len(w.due) > 0
		w.mu.Unlock()
		if idle && written {
			go w.offer() // the writer waits for nothing
		}
	})
}

// offer tells the clients of what is due and still unread, now or when it is time.
func (w *wakes) offer() {
	unread := w.server.opts.Session.Unread(events.RootOwner)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.later != nil {
		return
	}
	if early := wakeEvery - time.Since(w.last); early > 0 {
		w.later = time.AfterFunc(early, w.offerLate)
		return
	}
	var notices []string
	for _, m := range unread {
		if w.due[m.ID] {
			notices = append(notices, m.Notice)
		}
	}
	clear(w.due)
	if len(notices) == 0 {
		return
	}
	w.last = time.Now()
	if more := len(notices) - wakeNotices; more > 0 {
		notices = append(notices[:wakeNotices], fmt.Sprintf("● and %d more", more))
	}
	for p := range w.peers {
		p.wake(notices)
	}
}

// offerLate is the offer that waited, unless a call has begun: its end offers.
func (w *wakes) offerLate() {
	w.mu.Lock()
	w.later = nil
	idle := w.busy == 0 && len(w.due) > 0
	w.mu.Unlock()
	if idle {
		w.offer()
	}
}

func wakeData(notices []string) map[string]any {
	return map[string]any{"text": wakeText, "notices": notices}
}

// wake offers the client a turn, in each way that it may take.
func (p *peer) wake(notices []string) {
	if mcpgo.LoggingLevelInfo.ShouldSendTo(p.GetLogLevel()) {
		p.out.offer(notificationLine("notifications/message", map[string]any{
			"level": mcpgo.LoggingLevelInfo, "logger": wakeLogger, "data": wakeData(notices),
		}))
	}
	if p.takesChannel() {
		p.out.offer(notificationLine("notifications/"+channelCapability, map[string]any{
			"content": wakeText + "\n" + strings.Join(notices, "\n"),
			"meta":    map[string]string{"event": "mailbox", "owner": events.RootOwner},
		}))
	}
}

// takesChannel reports whether the client is one that knows channels.
func (p *peer) takesChannel() bool {
	if strings.HasPrefix(strings.ToLower(p.GetClientInfo().Name), "claude") {
		return true
	}
	_, ok := p.GetClientCapabilities().Experimental[channelCapability]
	return ok
}
