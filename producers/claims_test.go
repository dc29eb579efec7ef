//go:build linux

package producers

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// claimRounds makes the races longer: -claims 10000.
var claimRounds = flag.Int("claims", 200, "how many completions poll, mailbox and crash race for")

// A tally counts how often each completion was told, and by whom.
type tally struct {
	mu   sync.Mutex
	told map[string][]string
	// taken counts what sinks took, by sequence.
	taken map[uint64]int
}

func (c *tally) sunk(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[seq]++
}

func (c *tally) tell(claim *Claim, ids ...string) {
	if claim == nil {
		return
	}
	if rand.IntN(4) == 0 { // the answer is not written
		claim.Restore(rand.IntN(2) == 0)
		return
	}
	c.mu.Lock()
	for _, id := range ids {
		c.told[id] = append(c.told[id], claim.by)
	}
	c.mu.Unlock()
	claim.Delivered()
}

// TestClaimsRace lets polls, reads, the mailbox and a sink race for completions,
// some of whose answers are not written: each completion is told once.
func TestClaimsRace(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxProcesses = 0 })
	b.mail.loans.wait = time.Millisecond
	c := &tally{told: map[string][]string{}, taken: map[uint64]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() { collectAll(ctx, b.Session, c) })
	}
	readers.Go(func() { sinkAll(ctx, b.Session, c) })
	ids := make(chan string)
	var pollers sync.WaitGroup
	for range 4 {
		pollers.Go(func() {
			for id := range ids {
				race(b.Session, id, c)
			}
		})
	}
	var all []string
	for range *claimRounds {
		id := b.background("read x")
		all = append(all, id)
		ids <- id
		b.end(id)
	}
	close(ids)
	pollers.Wait()
	for _, id := range all {
		b.acknowledged(id)
	}
	cancel()
	readers.Wait()
	by := map[string]int{}
	for _, id := range all {
		c.told[id] = append(c.told[id], slices.Repeat([]string{bySink}, c.taken[b.posted(id).Seq])...)
		if n := len(c.told[id]); n != 1 || b.count(id, events.KindPosted) != 1 || b.count(id, events.KindAcknowledged) != 1 {
			t.Errorf("%s: told %d times by %v, %d acknowledgements", id, n, c.told[id], b.count(id, events.KindAcknowledged))
			continue
		}
		if a := b.acknowledged(id); a.By != c.told[id][0] {
			t.Errorf("%s: told by %s, and the ledger says %s", id, c.told[id][0], a.By)
		}
		by[c.told[id][0]]++
	}
	t.Logf("told: %v", by)
}

// race polls an execution's end in one way or the other.
func race(s *Session, id string, c *tally) {
	ctx := context.Background()
	switch rand.IntN(3) {
	case 0:
		res, _ := s.Wait(ctx, "", id, patience)
		c.tell(res.Claim, id)
	case 1:
		if res, _ := s.Wait(ctx, "", id, 0); res.Outcome == Settled {
			c.tell(res.Claim, id)
		}
	case 2:
		c.tell(s.Observed("", id, "read"), id)
	}
}

// collectAll reads the mailbox until the context ends.
func collectAll(ctx context.Context, s *Session, c *tally) {
	for {
		list, _, claim, err := s.Collect(ctx, "", 5, patience)
		if err != nil {
			return
		}
		var ids []string
		for _, m := range list {
			ids = append(ids, m.ID)
		}
		c.tell(claim, ids...)
	}
}

// tellAll is a server whose completions are told, by polls and by the mailbox,
// as fast as they come. What it has told, it has said.
func tellAll(ctx context.Context, s *Session) {
	say := func(claim *Claim, ids ...string) {
		if claim == nil {
			return
		}
		fmt.Fprintln(os.Stdout, "told", strings.Join(ids, " "))
		claim.Delivered()
	}
	for range 2 {
		go func() {
			for {
				r := Request{Command: "read x; echo $x", SideEffects: []string{"NONE"}}
				res, err := s.Exec(ctx, r)
				if err != nil {
					return
				}
				_ = s.Write("", res.Execution, Input{Data: []byte("hi\n")})
				if rand.IntN(2) == 0 {
					res, _ = s.Wait(ctx, "", res.Execution, patience)
					say(res.Claim, res.Execution)
				}
			}
		}()
	}
	for {
		list, _, claim, err := s.Collect(ctx, "", 3, patience)
		if err != nil {
			return
		}
		var ids []string
		for _, m := range list {
			ids = append(ids, m.ID)
		}
		say(claim, ids...)
	}
}

// TestClaimsSurviveACrash kills servers while they tell of completions. Their
// successor tells of the rest: nothing is missing, and what may have been told
// twice says so.
func TestClaimsSurviveACrash(t *testing.T) {
	rounds := max(3, *claimRounds/100)
	dir := t.TempDir()
	told := map[string]int{}
	var sessions []string
	for range rounds {
		v := newVictim(t, dir)
		sessions = append(sessions, v.session)
		if _, err := fmt.Fprintln(v.in, "tell"); err != nil {
			t.Fatal(err)
		}
		enough := 1 + rand.IntN(20)
		for range enough {
			v.notes(told)
		}
		v.kill()
		for _, line := range v.last {
			note(line, told)
		}
	}
	b := newBenchIn(t, dir)
	again, lost := b.inherit(t, told)
	t.Logf("%d told by %d dead servers, %d again, %d lost", len(told)-again, rounds, again, lost)
	for _, session := range sessions {
		checkMail(t, b, session, told)
	}
}

func (v *victim) notes(told map[string]int) {
	v.t.Helper()
	note(v.line(), told)
}

func note(line string, told map[string]int) {
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "told" {
		return
	}
	for _, id := range fields[1:] {
		told[id]++
	}
}

// inherit takes all that the dead left, and counts what was told before.
func (b *bench) inherit(t *testing.T, told map[string]int) (again, lost int) {
	for {
		list, _, claim, err := b.Collect(t.Context(), "", 50, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return again, lost
		}
		for _, m := range list {
			lost += len(m.Executions)
			if told[m.ID] > 0 && !m.Redelivered {
				t.Errorf("%s is told again, and does not say so", m.ID)
			}
			if told[m.ID] > 0 {
				again++
			}
			told[m.ID]++
		}
		claim.Delivered()
		for _, m := range list {
			b.untilRecord(m.ID)
		}
	}
}

// untilRecord waits until the record is acknowledged.
func (b *bench) untilRecord(id string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := 0; ; {
		for ; from < len(b.seen); from++ {
			if e := b.seen[from]; e.Kind() == events.KindAcknowledged && e.Subject == id {
				return
			}
		}
		b.news.Wait()
	}
}

// checkMail holds a dead session's mail to the rules.
func checkMail(t *testing.T, b *bench, session string, told map[string]int) {
	t.Helper()
	kinds := map[string]map[events.Kind]int{}
	yielded, settled := map[string]bool{}, map[string]events.Settled{}
	for _, e := range lifecycle(t, b.ledger, events.Filter{Session: session}) {
		switch body := e.Body.(type) {
		case events.Yielded:
			yielded[e.Subject] = true
		case events.Settled:
			settled[e.Subject] = body
		case events.Posted, events.Acknowledged:
			if kinds[e.Subject] == nil {
				kinds[e.Subject] = map[events.Kind]int{}
			}
			kinds[e.Subject][e.Kind()]++
		}
	}
	for id, n := range kinds {
		if n[events.KindPosted] != 1 || n[events.KindAcknowledged] != 1 {
			t.Errorf("record %s of %s: %v", id, session, n)
		}
	}
	for id := range yielded {
		if end, ok := settled[id]; ok && end.Termination != events.TermLost && (kinds[id] == nil || told[id] == 0) {
			t.Errorf("the completion of %s was told %d times, mail %v", id, told[id], kinds[id])
		}
	}
}
