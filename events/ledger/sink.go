package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// What a sink sees: the consumer [SinkConsumer] of the stream [SinkStream]. Both
// are names only. Each sink is in an account of its own, so all have the same.
const (
	SinkStream   = "MAILBOX"
	SinkConsumer = "sink"

	sinkNext = "$JS.API.CONSUMER.MSG.NEXT." + SinkStream + "." + SinkConsumer
	sinkInfo = "$JS.API.CONSUMER.INFO." + SinkStream + "." + SinkConsumer
	// sinkAck is followed by the sequence of the record and its lease. The server
	// keeps $JS.ACK for itself.
	sinkAck = SinkStream + ".ack."
	inbox   = "_INBOX."

	// accountInfo is imported from nowhere, where nobody answers: the server gives
	// its whole JetStream API to an account that has no such import.
	accountInfo = "$JS.API.INFO"
	nowhere     = "nowhere"
)

// maxSinks bounds the owners that have a sink.
const maxSinks = 64

// ErrSink says that a sink could not be made: the owner is none, or there are
// too many.
var ErrSink = errors.New("no sink")

// sinkCredentials let a program take the mail of one owner.
type sinkCredentials struct {
	Owner    string `json:"owner"`
	Password string `json:"password"`
}

// token stands for the owner in subjects, in the account and in the user.
func (s sinkCredentials) token() string {
	sum := sha256.Sum256([]byte(s.Owner))
	return hex.EncodeToString(sum[:8])
}

func (s sinkCredentials) user() string { return "sink-" + s.token() }

// server is whom the processes of the ledger log in as, to serve the sink.
func (s sinkCredentials) server() string { return "mailbox-" + s.token() }

// serverPassword follows from the key of whoever may write.
func (s sinkCredentials) serverPassword(c credentials) string {
	sum := sha256.Sum256([]byte("sink " + s.token() + " " + c.Seed))
	return hex.EncodeToString(sum[:])
}

// account is the sink's own. The ledger exports nothing into it: its requests
// reach the processes that log in there, and a reply subject of its choice
// reaches nothing else.
func (s sinkCredentials) account(c credentials) string {
	return fmt.Sprintf(`SINK_%s {
    users: [
      {user: %s, password: %q, permissions: {publish: {allow: [%q, %q, %q]}, subscribe: {allow: [%q]}}}
      {user: %s, password: %q}
    ]
    imports: [{service: {account: %s, subject: %s}, to: %q}]
  }`, s.token(), s.user(), s.Password, sinkNext, sinkInfo, sinkAck+"*.*", inbox+">",
		s.server(), s.serverPassword(c), ledgerAccount, nowhere, accountInfo)
}

// withSink is the credentials with a sink of the owner.
func (c credentials) withSink(owner string) (credentials, error) {
	if err := checkSink(owner); err != nil {
		return c, err
	}
	if slices.ContainsFunc(c.Sinks, func(s sinkCredentials) bool { return s.Owner == owner }) {
		return c, nil
	}
	if len(c.Sinks) >= maxSinks {
		return c, fmt.Errorf("%w: %d owners have one, and no more may; remove one with `yieldlog sink OWNER --remove`", ErrSink, maxSinks)
	}
	c.Sinks = append(slices.Clone(c.Sinks), sinkCredentials{owner, newPassword()})
	return c, nil
}

func (c credentials) withoutSink(owner string) credentials {
	c.Sinks = slices.DeleteFunc(slices.Clone(c.Sinks), func(s sinkCredentials) bool { return s.Owner == owner })
	return c
}

func checkSink(owner string) error {
	path, err := events.OwnerPath(owner)
	if err == nil && path != owner {
		err = fmt.Errorf("the owner is %q, not %q", path, owner)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSink, err)
	}
	return nil
}

// Sink is how any NATS client connects to take the mail of one owner, from a
// JetStream pull consumer, and nothing else.
type Sink struct {
	Owner    string `json:"owner"`
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	// Stream and Consumer name the pull consumer.
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	// AckWait is how long the sink may take for a record, and may prolong.
	AckWait time.Duration `json:"ack_wait_ns"`
	// Hosted says whether a process hosts the ledger now.
	Hosted bool `json:"hosted"`
}

// ReadSinks reads the sinks of a state directory, without opening the ledger. It
// returns [ErrNoLedger] where there is none.
func ReadSinks(dir string) ([]Sink, error) {
	c, err := stateDir(dir).readCredentials()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoLedger, dir)
	}
	if err != nil {
		return nil, err
	}
	url, hosted := c.address()
	list := make([]Sink, 0, len(c.Sinks))
	for _, s := range c.Sinks {
		list = append(list, Sink{
			Owner: s.Owner, URL: url, User: s.user(), Password: s.Password,
			Stream: SinkStream, Consumer: SinkConsumer, AckWait: AckWait, Hosted: hosted,
		})
	}
	return list, nil
}

// AddSink lets the owner have a sink, if it has none. The server restarts for it.
func (l *Ledger) AddSink(ctx context.Context, owner string) error {
	if err := checkSink(owner); err != nil {
		return err
	}
	return l.changeSink(ctx, orderSink, owner)
}

// RemoveSink voids the credentials of the owner's sink, if it has one. The
// server restarts for it.
func (l *Ledger) RemoveSink(ctx context.Context, owner string) error {
	return l.changeSink(ctx, orderUnsink, owner)
}

func (l *Ledger) changeSink(ctx context.Context, what, owner string) error {
	// The first is answered before the server restarts, and the second, which
	// changes nothing, after it.
	for range 2 {
		if err := l.order(ctx, what, owner); err != nil {
			return fmt.Errorf("changing the sink of %s: %w", owner, err)
		}
	}
	return nil
}
