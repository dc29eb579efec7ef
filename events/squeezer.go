package events

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// squeezeStep is how much is compressed at once, in bytes: a large chunk takes
// milliseconds, and others of this process want the processor meanwhile.
const squeezeStep = 64 << 10

// A squeezer is an encoder and room for what it makes.
type squeezer struct {
	zstd *zstd.Encoder
	room []byte
	rest func() // called between the steps: lets others run, at least
}

func newSqueezer(level zstd.EncoderLevel, window int) *squeezer {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		panic(err) // the options are constants
	}
	return &squeezer{zstd: w, rest: runtime.Gosched}
}

// squeezers are bounded by the callers: each holds one for the length of a call,
// and idle ones are given back to the collector.
var squeezers = sync.Pool{New: func() any { return newSqueezer(zstd.SpeedFastest, MaxChunk) }}

// compress is data as one zstd frame.
func compress(data []byte) ([]byte, error) {
	s := squeezers.Get().(*squeezer)
	defer squeezers.Put(s)
	return s.frames(data)
}

// frames is each part as a zstd frame, one behind the other. It rests between the
// steps. EncodeAll would have tables of its own beside these.
func (s *squeezer) frames(parts ...[]byte) ([]byte, error) {
	s.room = s.room[:0]
	for _, data := range parts {
		out := bytes.NewBuffer(s.room)
		s.zstd.ResetContentSize(out, int64(len(data)))
		for part := range slices.Chunk(data, squeezeStep) {
			if _, err := s.zstd.Write(part); err != nil {
				return nil, fmt.Errorf("compressing: %w", err)
			}
			s.rest()
		}
		if err := s.zstd.Close(); err != nil {
			return nil, fmt.Errorf("compressing: %w", err)
		}
		s.room = out.Bytes()
	}
	return bytes.Clone(s.room), nil
}
