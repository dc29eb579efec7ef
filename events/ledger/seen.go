package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
)

// A block that lost its end after an unclean stop looks like one that was not
// written to any further. So the host notes, now and then, which sequence each
// stream that takes events has reached: what was acknowledged up to then is on
// the disk, and an open that finds less must not go on as if nothing were amiss.

// seen is that note. In the file its checksum goes before it.
type seen struct {
	Version int               `json:"version"`
	Last    map[string]uint64 `json:"last"` // by stream
}

// noter writes the note, in place and without a sync: an old one is good, too.
type noter struct {
	file *os.File
	was  []byte
}

// note notes how far the lifecycle and the active segment are. A relaxed host
// does not: a power cut may take what it saw.
func (h *host) note(ctx context.Context) error {
	if h.o.Sync == SyncRelaxed {
		return nil
	}
	s := seen{Version: 1, Last: map[string]uint64{}}
	segs := h.marker.segments()
	for _, name := range []string{lifecycleStream, segs[len(segs)-1]} {
		stream, err := h.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("looking up stream %s: %w", name, err)
		}
		s.Last[name] = stream.CachedInfo().State.LastSeq
	}
	if err := h.noter.write(h.dir.seen(), s); err != nil {
		return fmt.Errorf("noting how far the streams are: %w", err)
	}
	return nil
}

func (n *noter) write(path string, s seen) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	line := fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(b), b)
	if bytes.Equal(line, n.was) {
		return nil
	}
	if n.file == nil {
		if n.file, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	// In one write, over all that was there.
	padded := append(slices.Clone(line), bytes.Repeat([]byte{' '}, max(0, len(n.was)-len(line)))...)
	if _, err := n.file.WriteAt(padded, 0); err != nil {
		return err
	}
	n.was = line
	return nil
}

func (n *noter) close() {
	if n.file != nil {
		_ = n.file.Close() // the note is a help, no more
	}
	*n = noter{}
}

// readSeen reads the note; nil when there is none that is whole.
func readSeen(d stateDir) map[string]uint64 {
	b, err := os.ReadFile(d.seen())
	if err != nil {
		return nil
	}
	sum, text, _ := bytes.Cut(bytes.TrimSpace(b), []byte{' '})
	var s seen
	if string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) || json.Unmarshal(text, &s) != nil || s.Version != 1 {
		return nil
	}
	return s.Last
}
