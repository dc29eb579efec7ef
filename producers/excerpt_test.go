//go:build unix

package producers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func TestARequestTooLargeToRecordIsRefusedAndHoldsNothingUp(t *testing.T) {
	s := newBench(t)
	much := strings.Repeat("é\x01", 3<<20)
	for field, r := range map[string]Request{
		"command":      request(much),
		"name":         {Command: "true", Name: much, SideEffects: []string{"OTHER"}},
		"cwd":          {Command: "true", Cwd: "/" + much, SideEffects: []string{"OTHER"}},
		"side effects": {Command: "true", SideEffects: []string{much}},
		"variable":     {Command: "true", SideEffects: []string{"OTHER"}, Env: map[string]string{much: "x"}},
	} {
		res, err := s.Exec(t.Context(), r)
		if err != nil || res.Outcome != Refused || res.Seq == 0 || len(res.Refusal) > 8<<10 {
			t.Errorf("%s: %v, %v, %.300s", field, err, res.Outcome, res.Refusal)
		}
	}
	if res, err := s.Exec(t.Context(), request("true")); err != nil || res.Outcome != Settled {
		t.Errorf("%v %+v", err, res)
	}
}

// To judge a request takes no longer than its size does.
func TestARequestOfAnySizeIsJudgedAtOnce(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowedCwds = []string{"/"} })
	deep := request("true")
	deep.Cwd = "/" + strings.Repeat("../", 300_000)
	res, err := b.Exec(t.Context(), deep)
	if err != nil || res.Outcome != Refused || !strings.Contains(res.Refusal, "too long: 900001 bytes") {
		t.Errorf("a long path: %v, %v, %.200s", err, res.Outcome, res.Refusal)
	}
	often := request("true")
	for range 17 { // 2^17 times
		often.SideEffects = append(often.SideEffects, often.SideEffects...)
	}
	began := time.Now()
	if res, err = b.Exec(t.Context(), often); err != nil || res.Outcome != Settled {
		t.Fatalf("NONE often: %v, %v, %.200s", err, res.Outcome, res.Refusal)
	}
	if took := time.Since(began); took > patience/4 {
		t.Errorf("NONE often was judged for %v", took)
	}
	if asked := b.until(res.Execution, func(e events.Event) bool { return e.Kind() == events.KindRequested }).Body.(events.Requested); len(asked.SideEffects) != 1 {
		t.Errorf("%d side effects are recorded", len(asked.SideEffects))
	}
}

// A secret may stand where none belongs.
func TestNoSecretIsRecordedOfARequestThatIsWrong(t *testing.T) {
	t.Setenv("TEST_TOKEN", "hunter2hunter2")
	b := newBench(t)
	r := request("true")
	r.SideEffects = []string{"hunter2hunter2"}
	r.Env = map[string]string{"TEST_TOKEN=hunter2hunter2": ""}
	res, err := b.Exec(t.Context(), r)
	if err != nil || res.Outcome != Refused {
		t.Fatalf("%v, %v", err, res.Outcome)
	}
	no := b.until(res.Execution, func(e events.Event) bool { return e.Kind() == events.KindRefused })
	if text := fmt.Sprintf("%+v %+v", no.Body, *no.Body.(events.Refused).Request); strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}
