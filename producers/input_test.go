//go:build unix

package producers

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestInputIsDeliveredInOrder(t *testing.T) {
	b := newBench(t)
	r := request("cat")
	r.Stdin, r.CloseStdin = strings.Repeat("naïve ☃\n", 300_000), true
	if n := b.run(r); n.out != r.Stdin {
		t.Errorf("%d bytes came back of %d", len(n.out), len(r.Stdin))
	}
	id := b.background("cat")
	var want strings.Builder
	for i := range 40 {
		line := strings.Repeat("é", i) + "\n"
		want.WriteString(line)
		if err := b.Write("", id, Input{Data: []byte(line), Close: i == 39}); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.ended(id); n.out != want.String() {
		t.Errorf("got %q", n.out)
	}
}

func TestInputThatNobodyReadsHoldsNothingUp(t *testing.T) {
	b := newBench(t)
	id := b.background("exec sleep 600", func(r *Request) { r.Stdin = strings.Repeat("z", 1<<20) })
	for range 20 { // 20 MiB are refused at some point, and never waited for
		if err := b.Write("", id, Input{Data: make([]byte, 1<<20)}); err != nil {
			if !errors.Is(err, ErrInput) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Error("the queue has no bound")
}

// A write that follows the answer at once is behind what the call itself wrote.
func TestY19_InputBehindTheFirst(t *testing.T) {
	b := newBench(t)
	first := strings.Repeat("z", stdinMost/2)
	for range 10 {
		id := b.background("head -c 1; tail -c 4", func(r *Request) { r.Stdin = first })
		if err := b.Write("", id, Input{Data: []byte("last"), Close: true}); err != nil {
			t.Fatal(err)
		}
		if n := b.ended(id); n.out != "zlast" {
			t.Fatalf("got %q", n.out)
		}
	}
}

// However much is unread, the end of the input can be put behind it.
func TestInputBehindTheBoundCanEnd(t *testing.T) {
	b := newBench(t)
	id := b.background("exec sleep 600", func(r *Request) { r.Stdin = strings.Repeat("z", 2*stdinMost) })
	if err := b.Write("", id, Input{Data: []byte("more")}); !errors.Is(err, ErrInput) {
		t.Errorf("more: %v", err)
	}
	if err := b.Write("", id, Input{Close: true}); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// What is wrong with input is told in words of the caller's.
func TestInputThatCannotArriveSaysWhy(t *testing.T) {
	b := newBench(t)
	id := b.background("exec <&-; echo closed; exec sleep 600")
	b.prints(id, "closed")
	var err error
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		err = b.Write("", id, Input{Data: []byte("x")})
	}
	if err == nil || err.Error() != "standard input is not writable: the command has closed it" {
		t.Errorf("%v", err)
	}
	id = b.background("exec sleep 600", func(r *Request) { r.Stdin = strings.Repeat("z", stdinMost) })
	if err = b.Write("", id, Input{Data: make([]byte, 1<<20)}); err == nil || !strings.HasSuffix(err.Error(), "at most 8388608 wait: write on once it has read") {
		t.Errorf("%v", err)
	}
}
