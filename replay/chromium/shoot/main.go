// Command shoot records a real session with the real yieldlog and takes the
// pictures of the README: the page, the report and the cockpit. docs/pictures/make.sh
// runs it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/replay/chromium"
)

func main() {
	binary := flag.String("yieldlog", "", "the yieldlog to run")
	out := flag.String("out", "docs/pictures", "where the pictures go")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := run(ctx, *binary, *out); err != nil {
		fmt.Fprintln(os.Stderr, "shoot:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, out string) (err error) {
	dir, err := os.MkdirTemp("", "home-")
	if err != nil {
		return fmt.Errorf("making a workspace: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	night, err := record(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, night.end()) }()
	b, err := chromium.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	c := camera{ctx: ctx, b: b, out: out}
	return errors.Join(c.page(night), c.report(night), c.cockpit(night))
}

// camera takes pictures of what a browser shows.
type camera struct {
	ctx context.Context
	b   *chromium.Browser
	out string
}

// shot is one picture: of an address, once ready is true in it.
type shot struct {
	name, path, ready string
	look              chromium.Look
	// rest is how long it is left to itself before the picture.
	rest time.Duration
}

// playing starts the player, and is true once it plays.
const playing = `document.querySelector(".ap-player") && (document.querySelector(".ap-overlay-start")?.click(), !document.querySelector(".ap-overlay-start"))`

var (
	light = chromium.Look{Width: 1240, Height: 780, Scale: 1.5}
	dark  = chromium.Look{Width: 1240, Height: 780, Scale: 1.5, Dark: true}
)

func (c camera) take(s shot) error {
	if err := c.b.Set(c.ctx, s.look); err != nil {
		return err
	}
	if err := c.b.Open(c.ctx, s.path); err != nil {
		return err
	}
	if err := c.b.Until(c.ctx, s.ready); err != nil {
		return err
	}
	time.Sleep(s.rest)
	png, err := c.b.Picture(c.ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.out, s.name+".png"), png, 0o644); err != nil { //nolint:gosec // a picture for everybody
		return fmt.Errorf("keeping a picture: %w", err)
	}
	return nil
}

// page takes pictures of yieldlog web.
func (c camera) page(n *night) error {
	cmd := n.command(c.ctx, "web")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("running the page: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running the page: %w", err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was asked to end
	}()
	link, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the page's link: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(link))
	if err != nil {
		return fmt.Errorf("reading the page's link: %w", err)
	}
	base := u.Scheme + "://" + u.Host
	if err := c.b.Open(c.ctx, u.String()); err != nil {
		return err
	}
	for _, s := range []shot{
		{"page", base + "/?pin=1&open=" + n.serving, `document.querySelector(".inspector .output")`, light, time.Second},
		{"page-failed", base + "/?show=failed&open=" + n.failed, `document.querySelector(".inspector .output")`, dark, 0},
		{"page-session", base + "/s/" + n.session, `document.querySelector("svg .bar")`, light, 0},
		{"page-player", base + "/x/" + n.terminal + "/play", playing, dark, 3 * time.Second},
	} {
		if err := c.take(s); err != nil {
			return err
		}
	}
	return nil
}

// report takes a picture of yieldlog report.
func (c camera) report(n *night) error {
	file := filepath.Join(n.dir, "report.html")
	if err := n.command(c.ctx, "report", n.session, "-o", file).Run(); err != nil {
		return fmt.Errorf("making the report: %w", err)
	}
	return c.take(shot{"report", (&url.URL{Scheme: "file", Path: file}).String(), `document.querySelector("svg .bar")`, light, 0})
}

// command is yieldlog on the ledger of the night.
func (n *night) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.binary, args...)
	cmd.Env = append(os.Environ(), "YIELDLOG_DIR="+filepath.Join(n.dir, "state"), "TERM=xterm-256color", "COLORTERM=truecolor")
	cmd.Dir = n.work
	cmd.Stderr = os.Stderr
	return cmd
}
