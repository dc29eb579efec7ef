package mcp

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

const (
	outputTemplate     = "yieldlog://execution/{id}/output"
	transcriptTemplate = "yieldlog://session/{id}/transcript{?owner}"
	mailboxTemplate    = "yieldlog://mailbox{+owner}"
	// listedMail is how many records a mailbox resource shows, the newest.
	listedMail = 1000
	// maxResource bounds what one read returns, in bytes of output. More is read
	// in pages, with the read tool.
	maxResource = 16 << 20
	// resourcePage is how much of a stream is read at a time, in bytes.
	resourcePage = 1 << 20
	// listedResources is how many executions resources/list shows, newest first.
	listedResources = 100
)

// outputRoot begins the address of each output.
const outputRoot = "yieldlog://execution/"

func outputURI(execution string) string   { return outputRoot + execution + "/output" }
func transcriptURI(session string) string { return "yieldlog://session/" + session + "/transcript" }

// ownedTranscriptURI is the transcript as the owner sees it.
func ownedTranscriptURI(session, owner string) string {
	return transcriptURI(session) + "?owner=" + strings.ReplaceAll(url.QueryEscape(owner), "+", "%20")
}

// mailboxURI is of the owner's mailbox: the path is the owner.
func mailboxURI(owner string) string {
	return "yieldlog://mailbox" + (&url.URL{Path: owner}).EscapedPath()
}

// addResources offers output and transcripts at addresses that stay. They are
// for the people who use the client: they show all owners.
func (s *Server) addResources() {
	s.protocol.AddResourceTemplate(mcpgo.NewResourceTemplate(outputTemplate, "output",
		mcpgo.WithTemplateDescription("The full output of a command, one part for each stream"),
		mcpgo.WithTemplateMIMEType("text/plain")), s.readOutput)
	if s.opts.Mailboxes != nil {
		s.protocol.AddResourceTemplate(mcpgo.NewResourceTemplate(mailboxTemplate, "mailbox",
			mcpgo.WithTemplateDescription("An owner's mail, read and unread, one line a record. Reading it here acknowledges nothing."),
			mcpgo.WithTemplateMIMEType("text/plain")), s.readMailbox)
	}
	if s.opts.Transcript == nil {
		return
	}
	s.protocol.AddResourceTemplate(mcpgo.NewResourceTemplate(transcriptTemplate, "transcript",
		mcpgo.WithTemplateDescription("What happened in a session, one line for each thing that somebody did; with an owner, its own and what ended below it"),
		mcpgo.WithTemplateMIMEType("text/plain")), s.readTranscript)
}

// listResources lists the session's transcript and mailboxes, and the newest
// executions. It is a hook, since what there is changes all the time.
func (s *Server) listResources(_ context.Context, _ any, _ *mcpgo.ListResourcesRequest, r *mcpgo.ListResourcesResult) {
	if s.opts.Session == nil {
		return
	}
	put := func(uri, name string) {
		r.Resources = append(r.Resources, mcpgo.NewResource(uri, name, mcpgo.WithMIMEType("text/plain")))
	}
	session := s.opts.Session.ID()
	if s.opts.Transcript != nil {
		put(transcriptURI(session), "Transcript of this session")
	}
	s.opts.Facts.View(func() {
		if s.opts.Mailboxes != nil {
			owners := append([]string{events.RootOwner}, s.opts.Mailboxes.Owners(session)...)
			slices.Sort(owners)
			for _, owner := range slices.Compact(owners) {
				put(mailboxURI(owner), "Mailbox of "+owner)
				if s.opts.Transcript != nil {
					put(ownedTranscriptURI(session, owner), "Transcript of "+owner)
				}
			}
		}
		most := len(r.Resources) + listedResources
		for p := range s.opts.Processes.All() {
			if len(r.Resources) >= most {
				return
			}
			if p.Session == session {
				put(outputURI(p.Execution), "Output of "+label(p))
			}
		}
	})
}

func label(p projections.Process) string {
	if p.Requested.Name != "" {
		return p.Requested.Name
	}
	return shorten(p.Requested.Command, 60)
}

// readOutput answers for an output resource.
func (s *Server) readOutput(ctx context.Context, r mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
	uri := r.Params.URI
	id := strings.TrimSuffix(strings.TrimPrefix(uri, outputRoot), "/output")
	var p projections.Process
	var ok bool
	s.opts.Facts.View(func() { p, ok = s.opts.Processes.Get(id) })
	if ok {
		ok = p.Session == s.opts.Session.ID() && p.Listed()
	} else {
		var err error
		if p, ok, err = s.legacy.find(ctx, id); err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, fmt.Errorf("no output at %s: %w", uri, mcpgoserver.ErrResourceNotFound)
	}
	if p.Offset > maxResource {
		return nil, fmt.Errorf("the output has %d bytes, and a resource shows at most %d: use the read tool with since_seq", p.Offset, maxResource)
	}
	streams := []events.Kind{events.KindStdout, events.KindStderr}
	if p.Requested.TTY != nil {
		streams = []events.Kind{events.KindTTY}
	}
	var parts []mcpgo.ResourceContents
	for _, stream := range streams {
		text, err := s.wholeStream(ctx, p, stream)
		if err != nil {
			return nil, err
		}
		parts = append(parts, mcpgo.TextResourceContents{URI: uri + "#" + string(stream), MIMEType: "text/plain", Text: text})
	}
	if n := p.PrunedIn(0, -1); n > 0 {
		parts = append(parts, mcpgo.TextResourceContents{URI: uri + "#pruned", MIMEType: "text/plain", Text: fmt.Sprintf("%d bytes of the output were pruned", n)})
	}
	return parts, nil
}

func (s *Server) wholeStream(ctx context.Context, p projections.Process, stream events.Kind) (string, error) {
	var b strings.Builder
	for from := int64(0); from < p.Offset; {
		page, err := s.opts.Pages(ctx, p.Session, p.Execution, replay.PageRequest{
			From: from, Limit: resourcePage, Streams: []events.Kind{stream}, End: p.Offset, Final: p.Settled != nil,
		})
		if err != nil {
			return "", fmt.Errorf("reading the output of %s: %w", p.Execution, err)
		}
		b.Write(page.Stdout)
		b.Write(page.Stderr)
		b.Write(page.TTY)
		if page.Next <= from { // What is left is an unfinished character.
			break
		}
		from = page.Next
	}
	return b.String(), nil
}

// readMailbox answers for a mailbox resource. People look: nobody is told.
func (s *Server) readMailbox(_ context.Context, r mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
	uri := r.Params.URI
	owner, err := url.PathUnescape(strings.TrimPrefix(uri, mailboxURI("")))
	if path, bad := events.OwnerPath(owner); err != nil || bad != nil || path != owner {
		return nil, fmt.Errorf("no mailbox at %s: %w", uri, mcpgoserver.ErrResourceNotFound)
	}
	var list []projections.Record
	s.opts.Facts.View(func() { list = s.opts.Mailboxes.List(s.opts.Session.ID(), owner) })
	var b strings.Builder
	for _, m := range s.opts.Session.Unread(owner) {
		if m.Session != s.opts.Session.ID() {
			fmt.Fprintf(&b, "%s %s  unread, of an earlier session\n", m.At.UTC().Format("15:04:05.000"), m.Notice)
		}
	}
	for _, m := range list[max(0, len(list)-listedMail):] {
		state := "unread"
		if m.State == projections.MailAcknowledged {
			state = "told by " + m.By
		}
		fmt.Fprintf(&b, "%s %s  %s\n", m.At.UTC().Format("15:04:05.000"), m.Notice, state)
	}
	return []mcpgo.ResourceContents{mcpgo.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: b.String()}}, nil
}

// readTranscript answers for a transcript resource.
func (s *Server) readTranscript(ctx context.Context, r mcpgo.ReadResourceRequest) ([]mcpgo.ResourceContents, error) {
	uri := r.Params.URI
	address, query, _ := strings.Cut(uri, "?")
	session := strings.TrimSuffix(strings.TrimPrefix(address, "yieldlog://session/"), "/transcript")
	asked, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("reading the address %s: %w", uri, err)
	}
	owner := asked.Get("owner")
	if path, err := events.OwnerPath(owner); err == nil {
		owner = path
	}
	rows, err := s.opts.Transcript(ctx, session, owner)
	if err != nil {
		return nil, fmt.Errorf("reading the transcript of %s: %w", session, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no transcript at %s: %w", uri, mcpgoserver.ErrResourceNotFound)
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%s %s\n", row.At.UTC().Format("15:04:05.000"), row.Text)
		if row.Breadcrumb != nil {
			fmt.Fprintf(&b, "             %s\n", row.Breadcrumb.Text)
		}
	}
	return []mcpgo.ResourceContents{mcpgo.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: b.String()}}, nil
}
