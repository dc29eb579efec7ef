package events

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// packedSample has runs of both streams, a clock that steps back, and a chunk
// of a terminal.
func packedSample() Event {
	at := time.Date(2026, 12, 1, 1, 2, 3, 4000, time.UTC)
	var p Packed
	p.Offset = 17
	for i := range 2 * framesFrom {
		kind := packedStreams[i/5%2]
		p.Records = append(p.Records, Record{Stream: kind, Time: at.Add(time.Duration(i * i * 1013)), Data: fmt.Appendf(nil, "line %d of the output\n", i)})
	}
	p.Records = append(p.Records, Record{Stream: KindTTY, Time: at.Add(-time.Hour), Data: []byte("\x1b[0m\xff")})
	return Event{ID: "01JE0000000000000000000177", Time: at, Session: "S", Owner: "/root", Subject: "E", Body: p}
}

// TestM66_PackedBytesStayReadable decodes a message as it was stored once.
func TestM66_PackedBytesStayReadable(t *testing.T) {
	want := packedSample()
	m, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "golden", "output.packed.zst")
	if *update {
		if err := os.WriteFile(path, m.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if m.Data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it came back different (-packed +decoded):\n%s", diff)
	}
	if from, to, ok := OutputSpan(m); !ok || from != 17 || to != want.Body.(Packed).End() {
		t.Errorf("the span is [%d,%d) %v", from, to, ok)
	}
	if kind := got.Kind(); kind != KindPacked || m.Subject != "yieldlog.S.output.E.packed" {
		t.Errorf("a %s on %s", kind, m.Subject)
	}
}

// TestPackedGoldenBytes holds the inflated bytes of a short message.
func TestPackedGoldenBytes(t *testing.T) {
	at := time.Unix(1, 0).UTC()
	m, err := Encode(Event{ID: "x", Time: at, Session: "S", Subject: "E", Body: Packed{Records: []Record{
		{KindStdout, at, []byte("out")}, {KindStderr, at.Add(300), []byte("er")}, {KindTTY, at, nil},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := unpackers.New().(interface {
		DecodeAll(_, _ []byte) ([]byte, error)
	}).DecodeAll(m.Data, nil)
	if err != nil {
		t.Fatal(err)
	}
	// format, records, unit, streams, lengths, times, bytes
	want := "01" + "03" + "01" + "000102" + "040301" + "00" + "d804" + "d704" + hex.EncodeToString([]byte("outer"))
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("the bytes are\n%s, want\n%s", got, want)
	}
}

// TestPackedLargest packs all that a message may hold, in one frame and in several,
// with one packer.
func TestPackedLargest(t *testing.T) {
	var p Packer
	at := time.Unix(1, 0).UTC()
	for _, n := range []int{1, framesFrom - 1, framesFrom, MaxRecords} {
		body := Packed{Records: make([]Record, n)}
		for i := range body.Records {
			data := make([]byte, MaxChunk/n)
			for j := range data {
				data[j] = byte(rand.Uint32())
			}
			body.Records[i] = Record{KindStdout, at.Add(time.Duration(i)), data}
		}
		m, err := p.Encode(Event{ID: "x", Time: at, Session: "S", Subject: "E", Body: body})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Body, Body(body)) {
			t.Errorf("%d records came out different", n)
		}
	}
}

// TestPackedLines stores no length for a line.
func TestPackedLines(t *testing.T) {
	for data, want := range map[string]uint64{"a line\n": 0, "\n": 0, "": 1, "half": 5, "two\nlines\n": 11} {
		if got := packedLength([]byte(data)); got != want {
			t.Errorf("the length of %q is %d, want %d", data, got, want)
		}
	}
}

func TestUnpackGivesTheChunksBack(t *testing.T) {
	e := packedSample()
	e.Seq = 9
	p := e.Body.(Packed)
	off, ids := p.Offset, map[string]bool{}
	i := 0
	for o := range Unpack(e) {
		want := e
		want.ID, want.Time = o.ID, p.Records[i].Time
		want.Body = Output{Stream: p.Records[i].Stream, Offset: off, Data: p.Records[i].Data}
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("record %d (-want +got):\n%s", i, diff)
		}
		off += int64(len(p.Records[i].Data))
		ids[o.ID] = true
		i++
	}
	if i != len(p.Records) || len(ids) != i || off != p.End() {
		t.Errorf("%d events with %d ids up to %d", i, len(ids), off)
	}
	again := slices.Collect(Unpack(e))
	if !ids[again[0].ID] || len(again[0].ID) != 26 {
		t.Errorf("the id %s is not the same again", again[0].ID)
	}
	settled := Event{ID: "y", Body: Settled{}}
	if got := slices.Collect(Unpack(settled)); len(got) != 1 || got[0].ID != "y" {
		t.Errorf("another event became %v", got)
	}
}

func TestPackingSmallLinesIsSmall(t *testing.T) {
	var p Packed
	raw := 0
	at := time.Unix(0, 0).UTC()
	for i := range 5000 {
		line := fmt.Appendf(nil, "GET /v1/things/%d 200 %dms\n", rand.N(1000), rand.N(100))
		p.Records = append(p.Records, Record{KindStdout, at.Add(time.Duration(i) * 1013 * time.Microsecond), line})
		raw += len(line)
	}
	m, err := Encode(Event{ID: "x", Time: at, Session: "S", Subject: "E", Body: p})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Data) > raw/2 {
		t.Errorf("%d bytes became %d", raw, len(m.Data))
	}
}

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	r := Record{Stream: KindStdout, Data: []byte("x")}
	for name, p := range map[string]Packed{
		"no records":          {},
		"too many records":    {Records: slices.Repeat([]Record{r}, MaxRecords+1)},
		"too many bytes":      {Records: []Record{{Stream: KindStdout, Data: make([]byte, MaxChunk)}, r}},
		"a stream of no kind": {Records: []Record{{Stream: "stdin"}}},
		"a negative offset":   {Offset: -1, Records: []Record{r}},
	} {
		if _, err := Encode(Event{ID: "x", Session: "S", Subject: "E", Body: p}); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	full := Packed{Records: append(slices.Repeat([]Record{r}, MaxRecords-1), Record{Stream: KindStdout, Data: make([]byte, MaxChunk-MaxRecords+1)})}
	m, err := Encode(Event{ID: "x", Session: "S", Subject: "E", Body: full})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(m); err != nil {
		t.Errorf("the greatest message: %v", err)
	}
}

// TestDecodeBoundsPacked crafts bodies that are longer, or other, than they say.
func TestDecodeBoundsPacked(t *testing.T) {
	good, err := Encode(packedSample())
	if err != nil {
		t.Fatal(err)
	}
	body := func(b []byte) func(*Message) {
		return func(m *Message) { m.Data = compressed(t, b) }
	}
	lengths := func(l uint64) []byte {
		return append(binary.AppendUvarint([]byte{packedFormat, 1, 1, 0}, l), 0)
	}
	for name, tc := range map[string]struct {
		change func(*Message)
		want   string
	}{
		"a bomb":             {body(make([]byte, 64<<20)), "inflating"},
		"a bomb in a header": {func(m *Message) { m.Header[headerLength] = []string{"1073741824"} }, "ce-length"},
		"another length":     {func(m *Message) { m.Header[headerLength] = []string{"10"} }, "packed bytes"},
		"another digest":     {func(m *Message) { m.Header[headerDigest] = []string{"00"} }, "digest"},
		"no digest":          {func(m *Message) { delete(m.Header, headerDigest) }, "digest"},
		"no offset":          {func(m *Message) { delete(m.Header, headerOffset) }, "ce-offset"},
		"a huge offset":      {func(m *Message) { m.Header[headerOffset] = []string{"9223372036854775807"} }, "ce-offset"},
		"no encoding":        {func(m *Message) { delete(m.Header, headerEncoding) }, "content-encoding"},
		"nothing":            {body(nil), "format"},
		"a new format":       {body([]byte{9, 1, 0, 0, 0}), "format"},
		"no records":         {body([]byte{packedFormat, 0}), "cut off"},
		"records not there":  {body([]byte{packedFormat, 200, 1, 1, 0}), "cut off"},
		"too many records":   {body(append(binary.AppendUvarint([]byte{packedFormat}, MaxRecords+1), make([]byte, 900<<10)...)), "cut off"},
		"a bad stream":       {body([]byte{packedFormat, 1, 1, 7, 0, 0}), "cut off"},
		"no time":            {body([]byte{packedFormat, 1, 1, 0, 0}), "cut off"},
		"no unit":            {body([]byte{packedFormat, 1, 0, 0, 0, 0}), "cut off"},
		"a huge unit":        {body(binary.AppendUvarint([]byte{packedFormat, 1}, 1<<40)), "cut off"},
		"a length beyond":    {body(lengths(MaxChunk + 2)), "cut off"},
		"a length too long":  {func(m *Message) { *m = withBytes(t, *m, append(lengths(7), "short"...), "short") }, "cut off"},
		"a length too short": {func(m *Message) { *m = withBytes(t, *m, append(lengths(5), "short"...), "short") }, "cut off"},
		"no newline":         {func(m *Message) { *m = withBytes(t, *m, append(lengths(0), "short"...), "short") }, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			m.Header = maps.Clone(m.Header)
			tc.change(&m)
			if _, err := Decode(m); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error about %q", err, tc.want)
			}
		})
	}
	later := good
	later.Header = maps.Clone(good.Header)
	later.Header[headerContentType] = []string{"application/vnd.yieldlog.packed-2"}
	if e, err := Decode(later); err != nil || e.Body.(Unknown).UnknownKind != KindPacked {
		t.Errorf("a later type of it became %v, %v", e.Body, err)
	}
}

func withBytes(t *testing.T, m Message, body []byte, data string) Message {
	m.Data = compressed(t, body)
	m.Header[headerLength] = []string{fmt.Sprint(len(data))}
	m.Header[headerDigest] = []string{digest([]byte(data))}
	return m
}

func FuzzReadRecords(f *testing.F) {
	f.Add([]byte{packedFormat, 1, 1, 0, 0, 0, 'l', '\n'}, 2)
	f.Add([]byte{packedFormat, 1, 1, 0, 6, 0, 'h', 'e', 'l', 'l', 'o'}, 5)
	f.Add([]byte{packedFormat, 2, 3, 0, 1, 2, 2, 2, 4, 'a', 'b'}, 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var sum string
		if size >= 0 && size <= len(b) {
			sum = digest(b[len(b)-size:])
		}
		list, err := readRecords(b, 0, size, sum)
		if err != nil {
			return
		}
		var data []byte
		for _, r := range list {
			data = append(data, r.Data...)
		}
		if !bytes.Equal(data, b[len(b)-size:]) {
			t.Errorf("the records hold %q", data)
		}
	})
}
