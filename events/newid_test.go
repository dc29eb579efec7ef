package events

import (
	"crypto/rand"
	"slices"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"
)

// Ids grow whatever the clock does, and none is made twice.
func TestIDsGrowWhenTheClockStepsBack(t *testing.T) {
	s := idSource{entropy: ulid.Monotonic(rand.Reader, 0)}
	var made []string
	for _, now := range []uint64{1000, 1000, 1001, 5, 5, 6, 1000, 1001, 1002, 0, 1 << 40, 3} {
		for range 100 {
			made = append(made, s.next(now))
		}
	}
	if !slices.IsSorted(made) || len(slices.Compact(slices.Clone(made))) != len(made) {
		t.Error("the ids do not grow")
	}
	// A random part that cannot grow begins anew.
	full := idSource{entropy: ulid.Monotonic(ones{}, 1)}
	first := full.next(7)
	if second := full.next(7); second <= first {
		t.Errorf("%s follows %s", second, first)
	}
}

// ones is a source of the greatest numbers.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0xff
	}
	return len(p), nil
}

func TestIDsAreUniqueAmongGoroutines(t *testing.T) {
	const each = 1000
	var all [8][]string
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range each {
				all[i] = append(all[i], NewID())
			}
		})
	}
	wg.Wait()
	made := map[string]bool{}
	for _, ids := range all {
		if !slices.IsSorted(ids) {
			t.Error("a goroutine's ids do not grow")
		}
		for _, id := range ids {
			made[id] = true
		}
	}
	if len(made) != len(all)*each {
		t.Errorf("%d ids are different", len(made))
	}
}
