package web

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/yieldlog/yieldlog/replay/look"
)

// Query is what an address asks for, beside its path: the whole state of a
// view. Its methods are the addresses of the neighbouring views.
type Query struct {
	path string
	// Open is the execution whose inspector is open: one at most. Pinned says
	// that it was opened among the running ones, where it stays.
	Open   string
	Pinned bool
	// Text, Show, Owner and Session choose among the ended executions; Deep
	// says that the text is looked for in output too.
	Text, Show, Owner, Session string
	Deep                       bool
	// Page counts from 1.
	Page int
	// More says that the panel is expanded.
	More bool
	// At is the lifecycle sequence of the moment; 0 is now.
	At uint64
	// From is an output offset in bytes; -1 is the last page.
	From int64
	// Row is the sequence of a transcript's row, whose page is shown.
	Row uint64
}

// parseQuery reads an address. What it does not understand is left out.
func parseQuery(path string, v url.Values) Query {
	q := Query{
		path: path, Open: v.Get("open"), Pinned: v.Has("pin"), Text: look.OneLine(v.Get("q")), Show: v.Get("show"),
		Owner: v.Get("owner"), Session: v.Get("session"), Deep: v.Has("deep"), More: v.Has("more"), Page: 1, From: -1,
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 0 {
		q.Page = n
	}
	if n, err := strconv.ParseUint(v.Get("at"), 10, 64); err == nil {
		q.At = n
	}
	if n, err := strconv.ParseUint(v.Get("row"), 10, 64); err == nil {
		q.Row = n
	}
	if n, err := strconv.ParseInt(v.Get("from"), 10, 64); err == nil && n >= 0 {
		q.From = n
	}
	return q
}

// values is the query as it stands in an address.
func (q Query) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"open": q.Open, "q": q.Text, "show": q.Show, "owner": q.Owner, "session": q.Session} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, set := range map[string]bool{"pin": q.Pinned && q.Open != "", "deep": q.Deep && q.Text != "", "more": q.More} {
		if set {
			v.Set(name, "1")
		}
	}
	if q.Page > 1 {
		v.Set("page", strconv.Itoa(q.Page))
	}
	if q.At > 0 {
		v.Set("at", strconv.FormatUint(q.At, 10))
	}
	if q.Row > 0 {
		v.Set("row", strconv.FormatUint(q.Row, 10))
	}
	if q.From >= 0 {
		v.Set("from", strconv.FormatInt(q.From, 10))
	}
	return v
}

func (q Query) at(path string) string {
	if v := q.values(); len(v) > 0 {
		return path + "?" + v.Encode()
	}
	return path
}

// Here is the address itself, and Events that of its changes.
func (q Query) Here() string   { return q.at(q.path) }
func (q Query) Events() string { return q.at("/live" + q.path) } //nolint:revive // described above

// To is another page as of the same moment, without the choices of this one.
func (q Query) To(path string) string { return Query{At: q.At, Page: 1, From: -1}.at(path) }

// Origin is the place of an execution in its session's transcript.
func (q Query) Origin(session, execution string, seq uint64) string {
	return Query{At: q.At, Page: 1, From: -1, Row: seq}.at("/s/"+session) + "#r-" + execution
}

// Toggle opens the inspector of an execution, or closes it if it is open.
func (q Query) Toggle(id string, pinned bool) string {
	if q.Open == id {
		return q.Close()
	}
	q.Open, q.Pinned = id, pinned
	return q.Here()
}

// Close closes the inspector.
func (q Query) Close() string {
	q.Open, q.Pinned = "", false
	return q.Here()
}

// Showing chooses among the ended executions.
func (q Query) Showing(show string) string {
	q.Show, q.Page, q.Open, q.Pinned = show, 1, "", false
	return q.Here()
}

// Seen is the transcript as an owner sees it, or with "" everyone's.
func (q Query) Seen(owner string) string {
	q.Owner, q.Page, q.Row, q.Open, q.Pinned = owner, 1, 0, "", false
	return q.Here()
}

// Turn is another page of the list.
func (q Query) Turn(page int) string {
	q.Page, q.Row, q.Open, q.Pinned = page, 0, "", false
	return q.Here()
}

// Expand shows the whole panel, and Fold its beginning.
func (q Query) Expand() string { q.More = true; return q.Here() }
func (q Query) Fold() string   { q.More = false; return q.Here() } //nolint:revive // described above

// Now is the same view as it is now, and As as of a sequence.
func (q Query) Now() string          { q.At = 0; return q.Here() }
func (q Query) As(seq uint64) string { q.At = seq; return q.Here() } //nolint:revive // described above

// Reading is the output from an offset on.
func (q Query) Reading(from int64) string { q.From = from; return q.Here() }

// Any reports whether the list is filtered.
func (q Query) Any() bool { return q.Text != "" || q.Show != "" || q.Owner != "" || q.Session != "" }

// All is the list without a filter.
func (q Query) All() string {
	q.Text, q.Show, q.Owner, q.Session, q.Deep, q.Page = "", "", "", "", false, 1
	return q.Here()
}

// Path is the address without its choices, and On whether it is path.
func (q Query) Path() string        { return q.path }
func (q Query) On(path string) bool { return q.path == path } //nolint:revive // described above

// Clock is the time of the person who looks.
func (q Query) Clock() time.Time { return time.Now() }

// Field is a hidden field of a form.
type Field struct{ Name, Value string }

// Hidden is what a form that chooses another moment carries on.
func (q Query) Hidden() []Field {
	q.At = 0
	v := q.values()
	var fields []Field
	for _, name := range slices.Sorted(maps.Keys(v)) {
		fields = append(fields, Field{name, v.Get(name)})
	}
	return fields
}
