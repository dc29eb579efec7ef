package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"time"
)

// Subscriber is how any NATS client connects to read: it may subscribe to
// yieldlog.> and get stored messages by direct get, and nothing else.
type Subscriber struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	// Lifecycle names the stream of lifecycle events, and Segments those of
	// output, oldest first.
	Lifecycle string   `json:"lifecycle"`
	Segments  []string `json:"segments"`
	// Hosted says whether a process hosts the ledger now. Nobody answers a
	// subscriber otherwise.
	Hosted bool `json:"hosted"`
}

// ReadSubscriber reads how to connect from a state directory, without opening
// the ledger. It returns [ErrNoLedger] where there is none.
func ReadSubscriber(dir string) (Subscriber, error) {
	d := stateDir(dir)
	c, err := d.readCredentials()
	if errors.Is(err, fs.ErrNotExist) {
		return Subscriber{}, fmt.Errorf("%w: %s", ErrNoLedger, dir)
	}
	if err != nil {
		return Subscriber{}, err
	}
	m, err := d.readMarker()
	if err != nil {
		return Subscriber{}, err
	}
	url, hosted := c.address()
	return Subscriber{
		URL: url, User: readerUser, Password: c.ReaderPassword,
		Lifecycle: lifecycleStream, Segments: m.segments(), Hosted: hosted,
	}, nil
}

// loopback is a port of this machine, as an address.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// address is where the host listens, and whether somebody does.
func (c credentials) address() (url string, hosted bool) {
	address := loopback(c.Port)
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err == nil {
		_ = conn.Close() // it only asked
	}
	return "nats://" + address, err == nil
}
