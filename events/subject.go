package events

import (
	"fmt"
	"strings"
)

// SubjectRoot is the first token of every event subject.
const SubjectRoot = "yieldlog"

// Subject is the event's subject: yieldlog.<session>.<class>.<id>.<kind>.
func Subject(session string, class Class, id string, kind Kind) string {
	return strings.Join([]string{SubjectRoot, session, string(class), id, string(kind)}, ".")
}

// Filter selects events by subject. A zero field selects everything.
type Filter struct {
	Session string
	Class   Class
	// ID is the session, execution or mailbox record.
	ID   string
	Kind Kind
}

// Subject is the filter as a NATS subject with wildcards.
func (f Filter) Subject() string {
	any := func(s string) string {
		if s == "" {
			return "*"
		}
		return s
	}
	return Subject(any(f.Session), Class(any(string(f.Class))), any(f.ID), Kind(any(string(f.Kind))))
}

// Match reports whether the filter selects the event.
func (f Filter) Match(e Event) bool {
	return (f.Session == "" || f.Session == e.Session) &&
		(f.Class == "" || f.Class == e.Class()) &&
		(f.ID == "" || f.ID == e.Subject) &&
		(f.Kind == "" || f.Kind == e.Kind())
}

// ParseSubject is the filter that selects the events of one subject. It fails
// when the subject is no event's.
func ParseSubject(s string) (Filter, error) {
	session, class, id, kind, err := parseSubject(s)
	return Filter{Session: session, Class: class, ID: id, Kind: kind}, err
}

// parseSubject splits a subject. It fails unless the subject has exactly the
// five tokens of the grammar.
func parseSubject(s string) (session string, class Class, id string, kind Kind, err error) {
	t := strings.Split(s, ".")
	if len(t) != 5 || t[0] != SubjectRoot {
		return "", "", "", "", fmt.Errorf("subject %q is not %s.<session>.<class>.<id>.<kind>", s, SubjectRoot)
	}
	for _, tok := range t[1:] {
		if !validToken(tok) {
			return "", "", "", "", fmt.Errorf("subject %q has the bad token %q", s, tok)
		}
	}
	return t[1], Class(t[2]), t[3], Kind(t[4]), nil
}

// validToken reports whether s can be a token of a subject: letters, digits,
// '-' and '_', 1 to 64 of them.
func validToken(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return true
}
