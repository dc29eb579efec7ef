// Command bench measures yieldlog through its real binary and a real MCP client
// on stdio, beside what the same machine can do without it, in one run: the
// ratios mean something on a noisy machine, the milliseconds little.
//
//	go run ./bench            # every table
//	go run ./bench exec read  # some of them
//	go run ./bench -peers     # also YieldShell and Desktop Commander, where they are installed
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A table is one thing that is measured.
type table struct {
	name string
	run  func(*bench) ([]row, error)
}

// A row is a figure and the budget that it has to keep.
type row struct {
	what, figure, budget string
	kept                 bool
}

var tables = []table{
	{"start", (*bench).start},
	{"exec", (*bench).execTrue},
	{"exit", (*bench).exitToAnswer},
	{"fast", (*bench).fastExits},
	{"read", (*bench).readPages},
	{"capture", (*bench).capture},
	{"flood", (*bench).besideFlood},
	{"beside", (*bench).beside},
	{"store", (*bench).store},
	{"open", (*bench).open},
}

// A bench owns a temporary directory with the binary in it.
type bench struct {
	dir    string
	binary string
	peers  bool
	rounds int
	most   int
}

func main() {
	if path := os.Getenv(feedVariable); path != "" {
		if err := feed(path); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	b := &bench{}
	flag.BoolVar(&b.peers, "peers", false, "measure YieldShell and Desktop Commander through the same client, where they are installed")
	flag.IntVar(&b.rounds, "rounds", 400, "calls for each figure")
	flag.IntVar(&b.most, "most", 1_000_000, "events of the longest ledger that is opened; 10000000 needs 14 GB of disk")
	into := flag.String("record", "", "only record -most events in this directory")
	flag.Parse()
	run := func() error { return b.main(flag.Args()) }
	if *into != "" {
		run = func() error { return record(*into, b.most) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) main(names []string) (err error) {
	if b.dir, err = os.MkdirTemp("", "yieldlog-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.binary = filepath.Join(b.dir, "yieldlog")
	build := exec.Command("go", "build", "-o", b.binary, "./cmd/yieldlog")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building yieldlog: %w", err)
	}
	fmt.Fprintf(os.Stdout, "%s, %d cores, %s\n\n", cpu(), runtime.NumCPU(), runtime.Version())
	fmt.Fprintln(os.Stdout, "| what | measured | budget | kept |\n| --- | --- | --- | --- |")
	for _, t := range tables {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		rows, err := t.run(b)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", t.name, err)
		}
		for _, r := range rows {
			kept := "yes"
			if r.budget == "" {
				kept = ""
			} else if !r.kept {
				kept = "**no**"
			}
			fmt.Fprintf(os.Stdout, "| %s | %s | %s | %s |\n", r.what, r.figure, r.budget, kept)
		}
	}
	return nil
}

// cpu is the processor's name, as Linux tells it.
func cpu() string {
	data, _ := os.ReadFile("/proc/cpuinfo") // elsewhere: unknown
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "model name\t: "); ok {
			return strings.TrimSpace(name)
		}
	}
	return runtime.GOARCH
}

// quantile is the q-th quantile of durations.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
