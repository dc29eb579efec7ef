package mcp

import (
	"strings"
	"sync"

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
	// http says that there may be clients that only mcp-go knows.
	http bool
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
	idle := w.busy == 0
	w.mu.Unlock()
	if idle {
		w.offer()
	}
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

// offer tells the clients of what is due and still unread.
func (w *wakes) offer() {
	unread := w.server.opts.Session.Unread(events.RootOwner)
	w.mu.Lock()
	defer w.mu.Unlock()
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
	for p := range w.peers {
		p.wake(notices)
	}
	if w.http {
		w.server.protocol.SendNotificationToAllClients("notifications/message", map[string]any{
			"level": mcpgo.LoggingLevelInfo, "logger": wakeLogger, "data": wakeData(notices),
		})
	}
}

// serveHTTP begins, or ends, the offers to clients over HTTP.
func (w *wakes) serveHTTP(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.http = on
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
