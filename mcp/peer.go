package mcp

import (
	"sync"
	"sync/atomic"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
)

// peer is a client as mcp-go sees it: what it said of itself, and what it
// subscribed to. It is safe for concurrent use.
type peer struct {
	id          string
	out         *outbox
	notes       chan mcpgo.JSONRPCNotification
	initialized atomic.Bool

	mu         sync.Mutex
	info       mcpgo.Implementation
	can        mcpgo.ClientCapabilities
	level      mcpgo.LoggingLevel
	subscribed map[string]bool
}

var (
	_ mcpgoserver.SessionWithClientInfo            = (*peer)(nil)
	_ mcpgoserver.SessionWithLogging               = (*peer)(nil)
	_ mcpgoserver.SessionWithResourceSubscriptions = (*peer)(nil)
)

func newPeer(id string, out *outbox) *peer {
	return &peer{
		id: id, out: out, notes: make(chan mcpgo.JSONRPCNotification, 256),
		level: mcpgo.LoggingLevelInfo, subscribed: map[string]bool{},
	}
}

// forward passes on what mcp-go sends by itself, until stop is closed. Nothing
// that has to stay in order with a response comes this way.
func (p *peer) forward(stop <-chan struct{}) {
	for {
		select {
		case n := <-p.notes:
			p.out.put(encode(n))
		case <-stop:
			return
		}
	}
}

func (p *peer) Initialize()       { p.initialized.Store(true) }
func (p *peer) Initialized() bool { return p.initialized.Load() }
func (p *peer) SessionID() string { return p.id }

func (p *peer) NotificationChannel() chan<- mcpgo.JSONRPCNotification { return p.notes }

func (p *peer) SetClientInfo(info mcpgo.Implementation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
}

func (p *peer) GetClientInfo() mcpgo.Implementation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

func (p *peer) SetClientCapabilities(can mcpgo.ClientCapabilities) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.can = can
}

func (p *peer) GetClientCapabilities() mcpgo.ClientCapabilities {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.can
}

func (p *peer) SetLogLevel(level mcpgo.LoggingLevel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.level = level
}

func (p *peer) GetLogLevel() mcpgo.LoggingLevel {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.level
}

func (p *peer) SubscribeToResource(uri string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscribed[uri] = true
}

func (p *peer) UnsubscribeFromResource(uri string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subscribed, uri)
}

func (p *peer) IsSubscribedToResource(uri string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subscribed[uri]
}

func (p *peer) SubscribedResources() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	uris := make([]string, 0, len(p.subscribed))
	for uri := range p.subscribed {
		uris = append(uris, uri)
	}
	return uris
}
