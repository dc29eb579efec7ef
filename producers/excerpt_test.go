//go:build unix

package producers

import (
	"strings"
	"testing"
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
