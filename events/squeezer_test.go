package events

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func compressed(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := compress(data)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestALargeChunkIsOneFrame: whatever its size, a chunk is one frame that says its
// length, which is what most decoders want.
func TestALargeChunkIsOneFrame(t *testing.T) {
	var text bytes.Buffer
	for r := rand.New(rand.NewPCG(1, 2)); text.Len() < MaxChunk; {
		fmt.Fprintf(&text, "request %08x took %d us\n", r.Uint32(), r.IntN(100000))
	}
	for _, n := range []int{CompressFrom, squeezeStep, squeezeStep + 1, 3*squeezeStep + 5, MaxChunk} {
		data := text.Bytes()[:n]
		z := compressed(t, data)
		var h zstd.Header
		if err := h.Decode(z); err != nil {
			t.Fatal(err)
		}
		if !h.HasFCS || h.FrameContentSize != uint64(n) {
			t.Errorf("%d bytes: the frame says %d", n, h.FrameContentSize)
		}
		if back, err := inflate(z, n); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%d bytes were inflated to %d, %v", n, len(back), err)
		}
		if n > squeezeStep && len(z) > n/2 {
			t.Errorf("%d bytes became %d", n, len(z))
		}
	}
}
