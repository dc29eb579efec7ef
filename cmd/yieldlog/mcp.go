package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/guardian"
	"github.com/yieldlog/yieldlog/mcp"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

func newMCP(a *app) *cobra.Command {
	var address, fork string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an MCP client over standard input and output",
		Long: `Serve an MCP client over standard input and output, until the input ends.

With --http the server listens instead; the bearer token is $YIELDLOG_HTTP_TOKEN,
or a new one that is printed to stderr. Only requests to localhost are answered:
another address is for a container's published port, or the end of a tunnel.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if f, ok := a.in.(*os.File); ok && address == "" && term.IsTerminal(f.Fd()) {
				fmt.Fprintln(a.err, "yieldlog: this waits for an MCP client's JSON; the README says how to set one up. Ctrl-D ends it.")
			}
			return a.serveMCP(c.Context(), address, fork)
		},
	}
	c.Flags().StringVar(&address, "http", "", "listen here for streamable HTTP, for example 127.0.0.1:7800")
	c.Flags().StringVar(&fork, "fork", "", "go on from the history of this session")
	_ = c.RegisterFlagCompletionFunc("fork", a.completeIDs) // it fails only for a flag that is not there
	return c
}

func (a *app) serveMCP(ctx context.Context, address, fork string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with serveMCP
		select {
		case <-guardian.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	keepFromCommands()
	cfg, _, err := a.config()
	if err != nil {
		return err
	}
	in, client := a.in, ""
	if address == "" {
		if in, client, err = greeting(ctx, a.in); err != nil {
			return nil // it was told to end before a client came
		}
	}
	l, shut, err := a.openTraced(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shut()) }()
	if fork != "" {
		from, err := resolveID(ctx, l, fork)
		if err != nil {
			return err
		}
		fork = from.session
	}
	if address != "" {
		defer producers.ServeSinks(l, nil)()
		defer producers.LookOut(l)() //nolint:contextcheck // until it is stopped
		return a.serveHTTP(ctx, address, func(ctx context.Context, client string) (*mcp.Server, func(string) error, error) {
			return a.openServer(ctx, cfg, l, client, fork)
		})
	}
	server, leave, err := a.openServer(ctx, cfg, l, client, fork)
	if err != nil {
		return err
	}
	defer func() {
		reason := "the client left"
		if ctx.Err() != nil {
			reason = "signalled"
		}
		err = errors.Join(err, leave(reason))
	}()
	if err := server.ServeStdio(ctx, in, a.out); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving the client: %w", err)
	}
	return nil
}

// openServer opens a session for a client, and makes the server that gives it
// what is in it.
func (a *app) openServer(ctx context.Context, cfg producers.Config, l *ledger.Ledger, client, fork string) (server *mcp.Server, leave func(reason string) error, err error) {
	feed := mcp.NewFeed()
	mailboxes := projections.NewMailbox()
	v, err := openSession(ctx, cfg, l, "mcp", client, feed, mailboxes)
	if err != nil {
		return nil, nil, err
	}
	v.sinks = producers.ServeSinks(l, v.session)
	leave = func(reason string) error { return v.end(ctx, reason) }
	if fork != "" {
		if err := v.session.ForkFrom(ctx, fork, 0); err != nil {
			return nil, nil, errors.Join(err, leave("it could not be forked"))
		}
	}
	server = mcp.New(mcp.Options{
		Version: buildVersion(), Session: v.session, Facts: v.engine, Processes: v.processes, Mailboxes: mailboxes, Feed: feed,
		Pages: func(ctx context.Context, session, execution string, r replay.PageRequest) (replay.Page, error) {
			return replay.ReadPage(ctx, v.recent, session, execution, r)
		},
		Transcript: func(ctx context.Context, session, owner string) ([]projections.Row, error) {
			return replay.Transcript(ctx, l, session, owner, 0)
		},
		Earlier: replay.Earlier{Source: l, Session: v.session.ID()},
		Search: func(ctx context.Context, q replay.Query) iter.Seq2[replay.Match, error] {
			return replay.Search(ctx, l, q)
		},
		MaxOutputBytes: cfg.MaxOutputBytes, Logger: a.logger(),
	})
	return server, leave, nil
}

// greeting waits for the client's first message, and takes from it who the
// client is, for the session to be opened with. The message stays to be read. The
// only error is that ctx ended; the read then waits on.
func greeting(ctx context.Context, in io.Reader) (rest io.Reader, client string, err error) {
	type first struct {
		rest   io.Reader
		client string
	}
	heard := make(chan first, 1)
	go func() {
		rest, client := mcp.Greeting(in)
		heard <- first{rest, client}
	}()
	select {
	case f := <-heard:
		return f.rest, f.client, nil
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// serveHTTP listens, and tells the clients' user where and with what token.
func (a *app) serveHTTP(ctx context.Context, address string, open mcp.Open) error {
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address // net would take every address of the machine
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return usageError{fmt.Errorf("listening on %s: %w", address, err)}
	}
	token := os.Getenv(tokenEnv)
	if token == "" {
		token = rand.Text()
		fmt.Fprintf(a.err, "yieldlog: the token is %s\n", token)
	}
	url, warning := reach(l.Addr())
	if warning != "" {
		fmt.Fprintln(a.err, "yieldlog:", warning)
	}
	fmt.Fprintln(a.err, "yieldlog: serving", url)
	return mcp.ServeHTTP(ctx, l, token, open)
}

// reach is where a program of this machine reaches the address, and a warning
// if others do.
func reach(address net.Addr) (url, warning string) {
	at := address.String()
	tcp, ok := address.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		at = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	if ok && !tcp.IP.IsLoopback() {
		warning = "other machines can reach this port: the token, sent unencrypted, is all that stops them (only requests to localhost are answered)"
	}
	return "http://" + at + "/mcp", warning
}
