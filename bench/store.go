package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// feedVariable makes this program play a chatty command: it prints the file that
// the variable names line by line, each with a write of its own.
const feedVariable = "YIELDLOG_BENCH_FEED"

// The pace of a chatty command, and its length.
const (
	feedPause = 200 * time.Microsecond
	feedLines = 20_000
)

func feed(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		if _, err := os.Stdout.Write(append(s.Bytes(), '\n')); err != nil {
			return err
		}
		time.Sleep(feedPause)
	}
	return s.Err()
}

// store runs real logs through the server line by line and compares the whole
// ledger on disk, packed and not, with gzip -1 of the log.
func (b *bench) store() ([]row, error) {
	var rows []row
	for _, l := range []struct {
		name string
		text func() ([]byte, error)
	}{
		{"go build -x", func() ([]byte, error) { return said("go", "build", "-a", "-n", "-x", "./...") }},
		{"go test -json", func() ([]byte, error) {
			return said("go", "test", "-json", "-count=20", "./events", "./projections")
		}},
		{"find -ls", func() ([]byte, error) { return said("sh", "-c", `find "$(go env GOROOT)/src" -ls`) }},
		{"npm install --verbose (made up)", npmLog},
	} {
		text, err := l.text()
		if err != nil {
			return nil, fmt.Errorf("making the log of %s: %w", l.name, err)
		}
		r, err := b.storeLog(l.name, head(text, feedLines))
		if err != nil {
			return nil, fmt.Errorf("storing the log of %s: %w", l.name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) storeLog(name string, text []byte) (row, error) {
	dir, err := os.MkdirTemp(b.dir, "store-")
	if err != nil {
		return row{}, err
	}
	path := filepath.Join(b.dir, "log")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return row{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return row{}, err
	}
	c, err := b.connect([]string{b.binary, "mcp"}, "YIELDLOG_DIR="+dir)
	if err != nil {
		return row{}, err
	}
	a, err := c.exec(fmt.Sprintf("%s=%s %s", feedVariable, path, self), "yield_ms", 300000)
	if err = errors.Join(err, c.close()); err != nil {
		return row{}, err
	}
	if a.Status != "completed" {
		return row{}, fmt.Errorf("the feed %s: %s", a.Status, a.Error)
	}
	before, err := folderBytes(dir)
	if err != nil {
		return row{}, err
	}
	if out, err := exec.Command(b.binary, "--dir", dir, "pack").CombinedOutput(); err != nil {
		return row{}, fmt.Errorf("packing: %w: %s", err, out)
	}
	after, err := folderBytes(dir)
	if err != nil {
		return row{}, err
	}
	back, err := exec.Command(b.binary, "--dir", dir, "logs", a.ProcessID).Output()
	if err != nil || !bytes.Equal(back, text) {
		return row{}, fmt.Errorf("read %d bytes back of %d: %w", len(back), len(text), err)
	}
	gz, err := exec.Command("gzip", "-1", "-c", path).Output()
	if err != nil {
		return row{}, fmt.Errorf("running gzip: %w", err)
	}
	zipped := int64(len(gz))
	return row{
		what:   fmt.Sprintf("`%s`, %d lines one by one, %s (gzip -1: %s): ledger on disk", name, bytes.Count(text, []byte("\n")), kb(int64(len(text))), kb(zipped)),
		figure: fmt.Sprintf("%s, packed %s: %.2f x gzip -1", kb(before), kb(after), float64(after)/float64(zipped)),
		budget: "1.00 x", kept: after <= zipped,
	}, nil
}

// said is what a command prints, on both streams.
func said(argv ...string) ([]byte, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w: %.200s", argv[0], err, out)
	}
	return out, nil
}

// npmLog looks like a verbose installation of the packages that go.sum names.
func npmLog() ([]byte, error) {
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return nil, err
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var buf []byte
	for range 60 {
		for line := range strings.Lines(string(sums)) {
			f := strings.Fields(line)
			name := filepath.Base(f[0])
			buf = fmt.Appendf(buf, "npm http fetch GET 200 https://registry.npmjs.org/%s 1%dms (cache %s)\n", name, rnd.IntN(900), []string{"miss", "hit"}[rnd.IntN(2)])
			if rnd.IntN(5) == 0 {
				buf = fmt.Appendf(buf, "npm warn deprecated %s@%d.%d.%d: this version is no longer supported\n", name, rnd.IntN(9), rnd.IntN(20), rnd.IntN(30))
			}
		}
	}
	return buf, nil
}

func head(text []byte, lines int) []byte {
	at := 0
	for range lines {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	return text[:at]
}

// folderBytes is the size of every file below a folder.
func folderBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			sum += i.Size()
		}
		return err
	})
	return sum, err
}

func kb(n int64) string { return fmt.Sprintf("%.0f kB", float64(n)/1000) }
