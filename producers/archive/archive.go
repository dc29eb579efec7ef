// Package archive moves sessions between ledgers, in a file: [Export] writes
// one, [Import] appends it to another ledger. Messages keep every byte, so the
// hash chain and the digests hold there as they did here.
//
// # Bytes
//
// An archive is a zstd stream. Its first line is {"yieldlog_archive":1}. Then
// come records, session after session: a line of JSON with the subject, the
// headers, the sequence it had, and the size of the data, followed by the data.
// Lifecycle records of a session are in their order; the output of an execution
// stands before its settlement. The last line is {"end":N}, N records: an
// archive without it was cut off.
package archive

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"

	"github.com/yieldlog/yieldlog/events"
)

const version = 1

// The bounds of what a reader takes: beyond them it is no archive.
const (
	maxLine = 256 << 10
	maxData = 2 << 20
)

// zstdMagic begins whatever is compressed as an archive is.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// ErrCutOff says that an archive ends before its end.
var ErrCutOff = errors.New("the archive is cut off")

// ErrNoArchive says that a file is something else.
var ErrNoArchive = errors.New("this is no archive of yieldlog")

// ErrDamaged says that an archive is not what was exported.
var ErrDamaged = errors.New("the archive is damaged or was altered")

// A record is a message and the sequence that it had in its ledger.
type record struct {
	seq uint64
	events.Message
}

// A line is any line of an archive.
type line struct {
	Archive int                 `json:"yieldlog_archive,omitempty"`
	Subject string              `json:"subject,omitempty"`
	Seq     uint64              `json:"seq,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Size    int                 `json:"size,omitempty"`
	End     *int                `json:"end,omitempty"`
}

type writer struct {
	zstd *zstd.Encoder
	json *json.Encoder
	n    int
}

func newWriter(w io.Writer) (*writer, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	a := &writer{zstd: z, json: json.NewEncoder(z)}
	a.json.SetEscapeHTML(false)
	return a, a.json.Encode(line{Archive: version})
}

func (a *writer) write(r record) error {
	a.n++
	if err := a.json.Encode(line{Subject: r.Subject, Seq: r.seq, Header: r.Header, Size: len(r.Data)}); err != nil {
		return err
	}
	_, err := a.zstd.Write(r.Data)
	return err
}

func (a *writer) close() error {
	if err := a.json.Encode(line{End: &a.n}); err != nil {
		return err
	}
	return a.zstd.Close()
}

// read is the records of an archive. It never panics, whatever the bytes are.
func read(r io.Reader) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		raw := bufio.NewReader(r)
		magic, _ := raw.Peek(len(zstdMagic)) // what is shorter is told below
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			yield(record{}, fmt.Errorf("%w: %w", ErrNoArchive, err))
			return
		}
		defer z.Close()
		in := bufio.NewReaderSize(z, maxLine)
		first, err := readLine(in)
		if errors.Is(err, ErrCutOff) {
			yield(record{}, ErrCutOff)
			return
		}
		if err != nil || first.Archive == 0 {
			told := ErrNoArchive
			if err := garbled(magic, in, err); err != nil {
				told = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			yield(record{}, told)
			return
		}
		if first.Archive > version {
			yield(record{}, fmt.Errorf("the archive has version %d, and this yieldlog knows %d: use a newer one", first.Archive, version))
			return
		}
		for n := 0; ; n++ {
			l, err := readLine(in)
			if err == nil && l.End != nil {
				if *l.End != n {
					yield(record{}, fmt.Errorf("%w: it holds %d records of %d", ErrCutOff, n, *l.End))
				}
				return
			}
			var rec record
			if err == nil {
				rec, err = readData(in, l)
			}
			if err != nil {
				if !errors.Is(err, ErrCutOff) {
					err = fmt.Errorf("%w: %w", ErrDamaged, err)
				}
				err = fmt.Errorf("reading record %d: %w", n+1, err)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// garbled is why what begins as an archive does, and has no first line of one,
// cannot be decompressed to its end, where its checksum is; nil if it can.
func garbled(magic []byte, rest io.Reader, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case !bytes.Equal(magic, zstdMagic):
		return nil
	case err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.As(err, &syntax) && !errors.As(err, &kind):
		return err // of the decoder, which tells it once
	}
	_, err = io.Copy(io.Discard, struct{ io.Reader }{rest}) // not WriteTo, which forgets an error
	return err
}

func readLine(in *bufio.Reader) (line, error) {
	var l line
	data, err := in.ReadSlice('\n')
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return l, ErrCutOff
	}
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(data, &l)
}

func readData(in *bufio.Reader, l line) (record, error) {
	r := record{seq: l.Seq, Message: events.Message{Subject: l.Subject, Header: l.Header}}
	if l.Size < 0 || l.Size > maxData {
		return r, fmt.Errorf("a message of %d bytes", l.Size)
	}
	r.Data = make([]byte, l.Size)
	_, err := io.ReadFull(in, r.Data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrCutOff
	}
	return r, err
}
