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
	feed := mcp.NewFeed()
	mailboxes := projections.NewMailbox()
	v, err := a.openLive(ctx, cfg, "mcp", client, feed, mailboxes)
	if err != nil {
		return err
	}
	v.sinks = producers.ServeSinks(v.ledger, v.session)
	defer func() {
		reason := "the client left"
		if ctx.Err() != nil {
			reason = "signalled"
		}
		err = errors.Join(err, v.close(ctx, reason))
	}()
	if fork != "" {
		from, err := resolveID(ctx, v.ledger, fork)
		if err != nil {
			return err
		}
		if err := v.session.ForkFrom(ctx, from.session, 0); err != nil {
			return err
		}
	}
	server := mcp.New(mcp.Options{
		Version: buildVersion(), Session: v.session, Facts: v.engine, Processes: v.processes, Mailboxes: mailboxes, Feed: feed,
		Pages: func(ctx context.Context, session, execution string, r replay.PageRequest) (replay.Page, error) {
			return replay.ReadPage(ctx, v.recent, session, execution, r)
		},
		Transcript: func(ctx context.Context, session, owner string) ([]projections.Row, error) {
			return replay.Transcript(ctx, v.ledger, session, owner, 0)
		},
		Earlier: replay.Earlier{Source: v.ledger, Session: v.session.ID()},
		Search: func(ctx context.Context, q replay.Query) iter.Seq2[replay.Match, error] {
			return replay.Search(ctx, v.ledger, q)
		},
		MaxOutputBytes: cfg.MaxOutputBytes, Logger: a.logger(),
	})
	if address != "" {
		return a.serveHTTP(ctx, address, server)
	}
	if err := server.ServeStdio(ctx, in, a.out); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving the client: %w", err)
	}
	return nil
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

// serveHTTP listens, and tells the client's user where and with what token.
func (a *app) serveHTTP(ctx context.Context, address string, server *mcp.Server) error {
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
	return server.ServeHTTP(ctx, l, token)
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
