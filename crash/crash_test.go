//go:build linux

package crash

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/internal/realbinary"
)

var (
	rounds     = flag.Int("rounds", 3, "rounds of TestCrash, each on a ledger of its own")
	seed       = flag.Uint64("seed", 1, "the seed of the first round; the next ones count on from it")
	windowName = flag.String("window", "", "kill only at this window")
)

const (
	// patience is for facts that must come: it only ends a test that failed.
	patience = time.Minute
	// windowPatience is for a window to open; a busy machine may need a while.
	windowPatience = 5 * time.Second
	// strikes is the kills of a round: three rounds see every window.
	strikes = 4
)

// binary is the real yieldlog, built once for the run.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(realbinary.Run(m, &binary))
}

// A round is one ledger under fire.
type round struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	dir   string // of the ledger
	env   []string
	plans *planner
	watch *watcher

	mu        sync.Mutex
	book      map[string]plan // by name
	answers   []answer
	letters   []letter
	confirmed []string        // records that a sink was told it had taken
	guardians map[int]bool    // the processes that clients started
	killed    map[int]bool    // and those that may end because of it
	spared    map[int]bool    // guardians of servers that were killed, and the other way round
	wounded   map[string]bool // executions of which a process was killed
	refused   int             // calls that were refused while nobody hosted
}

func TestCrash(t *testing.T) {
	for i := range *rounds {
		seed := *seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newRound(t, seed).run() })
		if t.Failed() {
			return
		}
	}
}

func newRound(t *testing.T, seed uint64) *round {
	dir := t.TempDir()
	r := &round{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dir: filepath.Join(dir, "ledger"),
		book: map[string]plan{}, guardians: map[int]bool{}, killed: map[int]bool{}, spared: map[int]bool{}, wounded: map[string]bool{},
	}
	r.plans = r.planner("checker")
	r.watch = newWatcher(r.dir)
	r.env = append(os.Environ(), "YIELDLOG_DIR="+r.dir, "CRASH_STARTED="+r.startedFile(),
		"YIELDLOG_SYNC=relaxed", "YIELDLOG_BACKGROUND_OPERATORS=allow") // no power is cut here
	return r
}

// planner makes the plans of one actor.
func (r *round) planner(prefix string) *planner {
	return &planner{
		rng: rand.New(rand.NewPCG(r.rng.Uint64(), 1)), prefix: prefix,
		marker: fmt.Sprintf("86400.%d%d", os.Getpid(), r.seed),
	}
}

// startedFile is where commands tell that they started.
func (r *round) startedFile() string { return r.dir + ".started" }

// windows are those of the round: three rounds have them all.
func (r *round) windows() []window {
	if w, ok := windowNamed(*windowName); ok {
		return slices.Repeat([]window{w}, strikes)
	}
	list := make([]window, 0, strikes)
	for i := range strikes {
		list = append(list, windows[(int(r.seed)*strikes+i)%len(windows)])
	}
	r.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// run has clients work, kills, and checks what is left.
func (r *round) run() {
	if _, ok := windowNamed(*windowName); *windowName != "" && !ok {
		r.t.Fatalf("there is no window %q", *windowName)
	}
	list := r.windows()
	r.under(list, r.begin(list))
}

// under kills at the windows, ends the actors, and checks what is left.
func (r *round) under(list []window, stop func() []error) {
	defer r.save()
	for _, w := range list {
		if t := w.targets[r.rng.IntN(len(w.targets))]; !r.strike(w, t) {
			r.logf("window %s did not open", w.name)
		}
	}
	for _, err := range stop() {
		r.t.Error(err)
	}
	r.check()
}

// An actor works on the ledger until ctx ends.
type actor func(ctx context.Context, p *planner) error

// begin starts the actors of a round.
func (r *round) begin(list []window) (stop func() []error) {
	actors := map[string]actor{"terminal": r.terminal, "harness": r.harness}
	if r.rng.IntN(2) == 0 {
		actors["serve"] = r.serve
	}
	for i := range 3 {
		actors[fmt.Sprintf("agent%d", i)] = r.agent
	}
	for name, a := range map[string]actor{"prune": r.prune, "pack": r.pack} {
		if slices.ContainsFunc(list, func(w window) bool { return w.name == name }) {
			actors[name] = a
		}
	}
	return r.act(actors)
}

// act starts actors. stop ends them, in good order or not, and waits.
func (r *round) act(actors map[string]actor) (stop func() []error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var errs []error
	wg.Go(func() { r.watch.run(ctx) })
	for _, name := range slices.Sorted(maps.Keys(actors)) {
		p := r.planner(name)
		wg.Go(func() {
			if err := actors[name](ctx, p); err != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	violent := r.rng.IntN(2) == 0
	return func() []error {
		if violent {
			for pid := range r.guardiansNow() {
				r.kill(pid)
			}
		}
		cancel()
		wg.Wait()
		return errs
	}
}

func (r *round) logf(format string, args ...any) { r.t.Logf(format, args...) }

func (r *round) began(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guardians[pid] = true
}

func (r *round) isGuardian(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guardians[pid]
}

func (r *round) guardiansNow() map[int]bool {
	living := map[int]bool{}
	for _, p := range r.left() {
		if r.isGuardian(p.pid) {
			living[p.pid] = true
		}
	}
	return living
}

func (r *round) wasKilled(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed[pid]
}

// hurt notes that a process of the execution is killed.
func (r *round) hurt(execution string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wounded[execution] = true
}

// wasHurt reports whether a process of any execution was killed: of whose is
// not known by name.
func (r *round) wasHurt() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wounded) > 0
}

func (r *round) planned(p plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book[p.name] = p
}

func (r *round) told(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
}

// save keeps the ledger of a round that failed, and says how to play it again.
func (r *round) save() {
	if !r.t.Failed() {
		return
	}
	kept, err := os.MkdirTemp("", fmt.Sprintf("yieldlog-crash-%d-", r.seed))
	if err == nil {
		err = os.CopyFS(filepath.Join(kept, "ledger"), os.DirFS(r.dir))
	}
	args := fmt.Sprintf("-run TestCrash -rounds 1 -seed %d", r.seed)
	if *windowName != "" {
		args += " -window " + *windowName
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(kept, "seed"), []byte(args+"\n"), 0o600)
	}
	r.t.Logf("the ledger is in %s (%v); again: go test ./crash %s -v", kept, err, strings.TrimSpace(args))
}
