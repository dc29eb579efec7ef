package events

import "testing"

func TestFilterSubjectAndMatchAgree(t *testing.T) {
	e := Event{Session: "S", Subject: "E", Body: Settled{}}
	for _, tc := range []struct {
		filter  Filter
		subject string
		match   bool
	}{
		{Filter{}, "yieldlog.*.*.*.*", true},
		{Filter{Session: "S"}, "yieldlog.S.*.*.*", true},
		{Filter{Session: "T"}, "yieldlog.T.*.*.*", false},
		{Filter{Class: ClassExecution, Kind: KindSettled}, "yieldlog.*.execution.*.settled", true},
		{Filter{Class: ClassMailbox}, "yieldlog.*.mailbox.*.*", false},
		{Filter{ID: "E"}, "yieldlog.*.*.E.*", true},
	} {
		if got := tc.filter.Subject(); got != tc.subject {
			t.Errorf("%+v is %q, want %q", tc.filter, got, tc.subject)
		}
		if got := tc.filter.Match(e); got != tc.match {
			t.Errorf("%+v matches: %v", tc.filter, got)
		}
	}
}

func TestTokensThatWouldSplitASubjectAreRefused(t *testing.T) {
	for _, bad := range []string{"", "a.b", "*", ">", "a b", "é", string(make([]byte, 65))} {
		if _, err := Encode(Event{ID: "x", Session: bad, Subject: "E", Body: Closed{}}); err == nil {
			t.Errorf("session %q was taken", bad)
		}
	}
}

func TestExecutionOfAnEvent(t *testing.T) {
	for _, e := range samples() {
		got := e.Execution()
		if want := e.Class() != ClassSession; (got != "") != want {
			t.Errorf("%s is about execution %q", e.Kind(), got)
		}
	}
}
