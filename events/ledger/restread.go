package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

// scan hands on the messages of a stream whose subject matches, from a sequence
// to the end, and returns where to go on. It fails with errStirred, and with
// errStopped when the reader had enough.
func (r *rest) scan(ctx context.Context, stream, subject string, from uint64, yield func(Raw, error) bool) (next uint64, err error) {
	match := pattern(subject)
	list, err := r.holders(ctx, stream, match)
	if err != nil {
		return from, err
	}
	return r.records(ctx, list, stream, from, func(rec []byte) error {
		if !match.matches(recordSubject(rec)) {
			return nil
		}
		m, err := message(rec)
		if err == nil && !yield(m, nil) {
			err = errStopped
		}
		return err
	})
}

// records hands on the records of blocks, from a sequence on until fn fails, and
// returns where to go on.
func (r *rest) records(ctx context.Context, list []restBlock, stream string, from uint64, fn func(rec []byte) error) (next uint64, err error) {
	start, err := r.holding(list, from)
	if err != nil {
		return from, err
	}
	next = from
	for _, b := range list[min(start, len(list)):] {
		if err := ctx.Err(); err != nil {
			return next, err
		}
		var bad error
		err := r.walk(b, stream, next, func(rec []byte) bool {
			bad = fn(rec)
			if bad == nil || errors.Is(bad, errStopped) {
				next = sequence(rec) + 1
			}
			return bad == nil
		})
		if err = errors.Join(err, bad); err != nil {
			return next, err
		}
	}
	return next, nil
}

// next is the first message at or after a sequence whose subject matches.
func (r *rest) next(ctx context.Context, stream, subject string, from uint64) (found Raw, err error) {
	_, err = r.scan(ctx, stream, subject, from, func(m Raw, _ error) bool {
		found = m
		return false
	})
	switch {
	case err == nil:
		return Raw{}, errNoMessage
	case errors.Is(err, errStopped):
		return found, nil
	}
	return Raw{}, err
}

// newest is the last message whose subject matches.
func (r *rest) newest(ctx context.Context, stream, subject string) (Raw, error) {
	match := pattern(subject)
	list, err := r.holders(ctx, stream, match)
	if err != nil {
		return Raw{}, err
	}
	for _, b := range slices.Backward(list) {
		if err := ctx.Err(); err != nil {
			return Raw{}, err
		}
		var last []byte
		if err := r.walk(b, stream, 0, func(rec []byte) bool {
			if match.matches(recordSubject(rec)) {
				last = append(last[:0], rec...)
			}
			return true
		}); err != nil {
			return Raw{}, err
		}
		if last != nil {
			return message(last)
		}
	}
	return Raw{}, errNoMessage
}

// holding is the index of the block that holds a sequence, if any does.
func (r *rest) holding(list []restBlock, seq uint64) (int, error) {
	if seq <= 1 {
		return 0, nil
	}
	for i := len(list) - 1; i > 0; i-- {
		first, err := r.first(list[i])
		if err != nil {
			return 0, err
		}
		if first != 0 && first <= seq {
			return i, nil
		}
	}
	return 0, nil
}

// tokens are a subject with wildcards for single tokens.
type tokens [][]byte

func pattern(subject string) tokens { return bytes.Split([]byte(subject), []byte(".")) }

func (p tokens) matches(subject []byte) bool {
	for i, want := range p {
		token, rest, more := bytes.Cut(subject, []byte("."))
		if more != (i < len(p)-1) || !bytes.Equal(want, []byte("*")) && !bytes.Equal(want, token) {
			return false
		}
		subject = rest
	}
	return true
}

func recordSubject(rec []byte) []byte {
	return rec[recordHeader : recordHeader+int(binary.LittleEndian.Uint16(rec[20:]))]
}

// message is the message of a whole record. It shares no bytes with it.
func message(rec []byte) (Raw, error) {
	subject := recordSubject(rec)
	m := Raw{Seq: sequence(rec), Message: events.Message{Subject: string(subject)}}
	body := rec[recordHeader+len(subject) : len(rec)-recordSum]
	if binary.LittleEndian.Uint32(rec)&headerBit != 0 {
		n := int(binary.LittleEndian.Uint32(body))
		if n > len(body)-4 {
			return Raw{}, errStirred
		}
		h, err := nats.DecodeHeadersMsg(body[4 : 4+n])
		if err != nil {
			return Raw{}, errStirred
		}
		m.Header, body = h, body[4+n:]
	}
	m.Data = bytes.Clone(body)
	return m, nil
}
