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
}

// squeezers are bounded by the callers: each holds one for the length of a call,
// and idle ones are given back to the collector.
var squeezers = sync.Pool{New: func() any {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(MaxChunk))
	if err != nil {
		panic(err) // the options are constants
	}
	return &squeezer{zstd: w}
}}

// compress is data as one zstd frame. It lets others run between the steps.
func compress(data []byte) ([]byte, error) {
	s := squeezers.Get().(*squeezer)
	defer squeezers.Put(s)
	if len(data) <= squeezeStep {
		s.room = s.zstd.EncodeAll(data, s.room[:0])
		return bytes.Clone(s.room), nil
	}
	out := bytes.NewBuffer(s.room[:0])
	s.zstd.ResetContentSize(out, int64(len(data)))
	for part := range slices.Chunk(data, squeezeStep) {
		if _, err := s.zstd.Write(part); err != nil {
			return nil, fmt.Errorf("compressing a chunk: %w", err)
		}
		runtime.Gosched()
	}
	if err := s.zstd.Close(); err != nil {
		return nil, fmt.Errorf("compressing a chunk: %w", err)
	}
	s.room = out.Bytes()
	return bytes.Clone(s.room), nil
}
