package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yieldlog/yieldlog/events"
)

const (
	lifecycleStream = "LIFECYCLE"
	segmentPrefix   = "OUTPUT_"
	// packedPrefix begins the name of a segment's packed twin, which takes its place.
	packedPrefix = "PACKED_"
	// ingestRoot begins the subjects that are published to; what is stored and
	// told to subscribers begins with [events.SubjectRoot].
	ingestRoot = "ingest"
	// segmentMark is the subject of a segment's first message, which is no event:
	// see [sealStream].
	segmentMark = "segment"

	// duplicateWindow is how long JetStream knows the ids of what it stored.
	duplicateWindow = 2 * time.Minute
	maxMessage      = 1 << 20
)

// segmentName is the name of the nth output segment, from 1.
func segmentName(n int) string { return fmt.Sprintf("%s%06d", segmentPrefix, n) }

// twinName is the packed twin of a raw segment, and the raw one of a twin.
func twinName(segment string) string {
	if n, ok := strings.CutPrefix(segment, packedPrefix); ok {
		return segmentPrefix + n
	}
	return packedPrefix + strings.TrimPrefix(segment, segmentPrefix)
}

// ingestPrefix goes before an event's subject to publish it to one stream.
func ingestPrefix(stream string) string { return ingestRoot + "." + stream + "." }

// streamConfig is how a stream is made. Events come in under the stream's own
// ingest subjects, are stored under theirs, and are told again once they are
// stored; what is packed was told before. Discard new: a ledger refuses rather
// than forget.
func streamConfig(name string, maxBytes int64) jetstream.StreamConfig {
	classes := []events.Class{events.ClassSession, events.ClassExecution, events.ClassMailbox}
	if name != lifecycleStream {
		classes = []events.Class{events.ClassOutput}
	}
	subjects := make([]string, len(classes))
	for i, c := range classes {
		subjects[i] = ingestPrefix(name) + events.Filter{Class: c}.Subject()
	}
	if name != lifecycleStream {
		subjects = append(subjects, ingestPrefix(name)+segmentMark)
	}
	republish := &jetstream.RePublish{Source: events.SubjectRoot + ".>", Destination: events.SubjectRoot + ".>"}
	if isPacked(name) {
		republish = nil
	}
	return jetstream.StreamConfig{
		Name:             name,
		Subjects:         subjects,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: ingestPrefix(name) + ">", Destination: ">"},
		RePublish:        republish,
		Storage:          jetstream.FileStorage,
		Replicas:         1,
		Retention:        jetstream.LimitsPolicy,
		Discard:          jetstream.DiscardNew,
		MaxBytes:         maxBytes,
		MaxMsgSize:       maxMessage,
		Duplicates:       duplicateWindow,
		AllowDirect:      true,
		DenyDelete:       true,
	}
}

// createStream makes a stream that never existed. Whoever calls it has looked
// at the marker first: a stream that existed is never made again.
func createStream(ctx context.Context, js jetstream.JetStream, name string, maxBytes int64) error {
	if _, err := js.CreateStream(ctx, streamConfig(name, maxBytes)); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("creating the stream %s: %w", name, err)
	}
	return nil
}

// sealStream ends a segment for good. First it takes the event subjects away:
// what is published from then on finds no stream, and is sent again to the next
// segment. Then it purges the segment's mark, which makes JetStream write the
// index, so that a later open need not read the blocks again.
func sealStream(ctx context.Context, js jetstream.JetStream, name string) error {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("sealing %s: %w", name, err)
	}
	cfg := s.CachedInfo().Config
	if cfg.Sealed {
		return nil
	}
	cfg.Subjects = []string{ingestPrefix(name) + segmentMark}
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("silencing %s: %w", name, err)
	}
	if m, err := s.GetMsg(ctx, 1); err == nil && m.Subject == segmentMark {
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(2)); err != nil {
			return fmt.Errorf("writing the index of %s: %w", name, err)
		}
	}
	cfg.Sealed = true
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("sealing %s: %w", name, err)
	}
	return nil
}
