package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// start measures from the start of the process to the answer to initialize.
func (b *bench) start() ([]row, error) {
	var fresh []time.Duration
	for range 20 {
		at := time.Now()
		c, err := b.server()
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, time.Since(at))
		if err := c.close(); err != nil {
			return nil, err
		}
	}
	p50 := quantile(fresh, 0.5)
	return []row{{"start to initialize, p50", ms(p50), "50 ms", p50 <= 50*time.Millisecond}}, nil
}

// floor is what a bare fork and exec of the same shell takes.
func floor() (time.Duration, error) {
	at := time.Now()
	cmd := exec.Command("/bin/sh", "-c", "true")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return time.Since(at), err
}

// execTrue interleaves the floor, yieldlog with both sync settings, and the
// peers.
func (b *bench) execTrue() ([]row, error) {
	type subject struct {
		name   string
		c      *client
		budget float64
		took   []time.Duration
	}
	var subjects []*subject
	add := func(name string, budget float64, c *client, err error) error {
		if err == nil {
			subjects = append(subjects, &subject{name: name, c: c, budget: budget})
		}
		return err
	}
	always, err := b.server()
	if err := add("`exec true`, every event on disk", 2.0, always, err); err != nil {
		return nil, err
	}
	relaxed, err := b.server("YIELDLOG_SYNC=relaxed")
	if err := add("`exec true`, sync relaxed", 1.5, relaxed, err); err != nil {
		return nil, err
	}
	if b.peers {
		for name, argv := range peers {
			c, err := b.connect(argv)
			if err := add("`exec true`, "+name, 0, c, err); err != nil {
				return nil, fmt.Errorf("starting %s: %w", name, err)
			}
		}
	}
	var bare []time.Duration
	for i := range b.rounds + 20 {
		d, err := floor()
		if err != nil {
			return nil, err
		}
		bare = append(bare, d)
		for _, s := range subjects {
			at := time.Now()
			if err := b.trueOn(s.name, s.c); err != nil {
				return nil, err
			}
			s.took = append(s.took, time.Since(at))
		}
		if i == 19 { // warm
			bare = nil
			for _, s := range subjects {
				s.took = nil
			}
		}
	}
	unit := quantile(bare, 0.5)
	rows := []row{{what: "bare fork and exec of `sh -c true`, p50", figure: ms(unit)}}
	for _, s := range subjects {
		p50 := quantile(s.took, 0.5)
		r := row{what: s.name + ", p50", figure: fmt.Sprintf("%s, %.2f x", ms(p50), float64(p50)/float64(unit))}
		if s.budget > 0 {
			r.budget, r.kept = fmt.Sprintf("%.1f x", s.budget), float64(p50) <= s.budget*float64(unit)
		}
		rows = append(rows, r)
		if err := s.c.close(); err != nil && s.budget > 0 {
			return nil, err
		}
	}
	return rows, nil
}

// peers are servers that do a similar job, started as their documents say.
var peers = map[string][]string{
	"YieldShell":        {"yieldshell-mcp"},
	"Desktop Commander": {"npx", "--no-install", "@wonderwhy-er/desktop-commander"},
}

func (b *bench) trueOn(name string, c *client) error {
	if strings.Contains(name, "Desktop Commander") {
		_, err := c.request("tools/call", map[string]any{"name": "start_process", "arguments": map[string]any{"command": "true", "timeout_ms": 5000}})
		return err
	}
	a, err := c.exec("true")
	if err == nil && (a.Status != "completed" || a.ExitCode == nil || *a.ExitCode != 0) {
		err = fmt.Errorf("exec true on %s answered %+v", name, a)
	}
	return err
}

// exitToAnswer measures from the last thing that a child does to the answer.
func (b *bench) exitToAnswer() ([]row, error) {
	c, err := b.server()
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range b.rounds {
		a, err := c.exec("exec date +%s%N")
		at := time.Now()
		if err != nil {
			return nil, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(a.Stdout), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("date printed %q: %w", a.Stdout, err)
		}
		took = append(took, at.Sub(time.Unix(0, ns)))
	}
	p50 := quantile(took, 0.5)
	return []row{{"exit of the child to the answer, p50", ms(p50), "3 ms", p50 <= 3*time.Millisecond}}, c.close()
}

// fastExits runs commands that print 24 kB and exit at once.
func (b *bench) fastExits() ([]row, error) {
	c, err := b.server("YIELDLOG_MAX_OUTPUT_BYTES=40000")
	if err != nil {
		return nil, err
	}
	const n, lines = 300, 5000
	whole := 0
	for range n {
		a, err := c.exec(fmt.Sprintf("seq 1 %d", lines), "max_output_bytes", 40000)
		if err != nil {
			return nil, err
		}
		if strings.Count(a.Stdout, "\n") == lines && strings.HasSuffix(a.Stdout, fmt.Sprintf("\n%d\n", lines)) {
			whole++
		}
	}
	return []row{{"300 fast exits with 24 kB each, whole", fmt.Sprintf("%d", whole), "300", whole == n}}, c.close()
}

// readPages reads pages anywhere in a long output.
func (b *bench) readPages() ([]row, error) {
	c, err := b.server()
	if err != nil {
		return nil, err
	}
	const size = 64_000_000
	a, err := c.exec(fmt.Sprintf("yes 'a line of output that is not very long, but long enough' | head -c %d", size), "yield_ms", 60000)
	if err != nil {
		return nil, err
	}
	if a.Status != "completed" {
		return nil, fmt.Errorf("writing 64 MB answered %s %s", a.Status, a.Error)
	}
	var near, far []time.Duration
	for range b.rounds {
		at := rand.Int64N(size)
		began := time.Now()
		p, err := c.call("read", map[string]any{"process_id": a.ProcessID, "since_seq": at})
		took := time.Since(began)
		if err != nil {
			return nil, err
		}
		if len(p.Stdout) == 0 {
			return nil, fmt.Errorf("a page at %d is empty", at)
		}
		if at < size/2 {
			near = append(near, took)
		} else {
			far = append(far, took)
		}
	}
	n, f := quantile(near, 0.5), quantile(far, 0.5)
	return []row{
		{"`read` of a page in the first half of 64 MB, p50", ms(n), "5 ms", n <= 5*time.Millisecond},
		{"`read` of a page in the second half, p50", ms(f), "5 ms", f <= 5*time.Millisecond},
	}, c.close()
}

const gigabyte = 1_000_000_000

// logFile is a gigabyte that looks like a log.
func (b *bench) logFile() (string, string, error) {
	path := filepath.Join(b.dir, "gigabyte")
	f, err := os.Create(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	h := sha256.New()
	w := io.MultiWriter(f, h)
	rnd := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 0, 1<<20)
	for written := 0; written < gigabyte; {
		buf = buf[:0]
		for len(buf) < 1<<20-200 {
			buf = fmt.Appendf(buf, "2026-12-01T%02d:%02d:%02dZ worker-%d request %08x took %d us\n", rnd.IntN(24), rnd.IntN(60), rnd.IntN(60), rnd.IntN(16), rnd.Uint32(), rnd.IntN(100000))
		}
		if len(buf) > gigabyte-written {
			buf = buf[:gigabyte-written]
		}
		if _, err := w.Write(buf); err != nil {
			return "", "", err
		}
		written += len(buf)
	}
	return path, hex.EncodeToString(h.Sum(nil)), f.Sync()
}

// capture records a gigabyte, beside writing the same stream to a file.
func (b *bench) capture() ([]row, error) {
	path, digest, err := b.logFile()
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(b.dir, "copy")
	at := time.Now()
	if out, err := exec.Command("/bin/sh", "-c", fmt.Sprintf("cat %s > %s && sync %s", path, copied, copied)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying: %w: %s", err, out)
	}
	bare := time.Since(at)
	if err := os.Remove(copied); err != nil {
		return nil, err
	}
	c, err := b.server("YIELDLOG_OUTPUT_LIMIT_BYTES=2000000000")
	if err != nil {
		return nil, err
	}
	at = time.Now()
	a, err := c.exec("cat "+path, "yield_ms", 300000)
	took := time.Since(at)
	if err != nil {
		return nil, err
	}
	peak := c.peak()
	same, err := b.digestIs(c, a.ProcessID, digest)
	if err != nil {
		return nil, err
	}
	ratio := float64(bare) / float64(took)
	rows := []row{
		{"1 GB captured, of the rate of `cat > file` and fsync", fmt.Sprintf("%.2f x (%.0f MB/s of %.0f)", ratio, gigabyte/1e6/took.Seconds(), gigabyte/1e6/bare.Seconds()), "0.5 x", ratio >= 0.5},
		{"its digest is equal", strconv.FormatBool(same), "true", same},
		{"peak memory", fmt.Sprintf("%d MB", peak/1_000_000), "150 MB", peak <= 150_000_000},
	}
	return rows, errors.Join(c.close(), os.Remove(path))
}

// digestIs asks the ledger for the digest of an execution's output.
func (b *bench) digestIs(c *client, id, digest string) (bool, error) {
	dir := ""
	for _, e := range c.cmd.Env {
		if v, ok := strings.CutPrefix(e, "YIELDLOG_DIR="); ok {
			dir = v
		}
	}
	cmd := exec.Command(b.binary, "--dir", dir, "logs", id)
	h := sha256.New()
	cmd.Stdout = h
	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("reading the output back: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)) == digest, nil
}

// besideFlood runs commands while another floods.
func (b *bench) besideFlood() ([]row, error) {
	c, err := b.server("YIELDLOG_OUTPUT_LIMIT_BYTES=100000000000")
	if err != nil {
		return nil, err
	}
	flood, err := c.exec("yes 'a flood of lines, each of them rather ordinary'", "yield_ms", 0)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range b.rounds {
		at := time.Now()
		if err := b.trueOn("yieldlog", c); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	if _, err := c.call("stop", map[string]any{"process_id": flood.ProcessID}); err != nil {
		return nil, err
	}
	p99 := quantile(took, 0.99)
	return []row{{"`exec true` beside a flood, p99 (p50 " + ms(quantile(took, 0.5)) + ")", ms(p99), "10 ms", p99 <= 10*time.Millisecond}}, c.close()
}
