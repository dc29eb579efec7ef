package ledger

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nats-io/nkeys"
)

// readerUser is the name that read-only subscribers log in with.
const readerUser = "reader"

// endpoint says where the host listens. It is there only while a host runs, or
// after one died.
type endpoint struct {
	Version int    `json:"version"`
	URL     string `json:"url"`
	Port    int    `json:"port"`
	PID     int    `json:"pid"`
}

// hostPID names the process that hosts, or hosted, in brackets; nothing if none does.
func (d stateDir) hostPID() string {
	var ep endpoint
	if readJSON(d.endpoint(), &ep) != nil {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", ep.PID)
}

// credentials are generated once and kept over restarts. The port is kept with
// them: a subscriber's connection details stay good.
type credentials struct {
	Version int `json:"version"`
	// Port is 0 until the first host has chosen one.
	Port int `json:"port"`
	// Seed is the private nkey of whoever may write.
	Seed string `json:"seed"`
	// ReaderPassword is the password of read-only subscribers.
	ReaderPassword string `json:"reader_password"`
	// Sinks are who may take the mail of an owner, at most [maxSinks].
	Sinks []sinkCredentials `json:"sinks,omitempty"`
}

// newCredentials makes new ones, for the owners that had a sink too.
func newCredentials(port int, sinks []sinkCredentials) (credentials, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return credentials{}, fmt.Errorf("generating credentials: %w", err)
	}
	seed, err := kp.Seed()
	if err != nil {
		return credentials{}, fmt.Errorf("generating credentials: %w", err)
	}
	c := credentials{Version: 1, Port: port, Seed: string(seed), ReaderPassword: newPassword()}
	for _, s := range sinks {
		c.Sinks = append(c.Sinks, sinkCredentials{s.Owner, newPassword()})
	}
	return c, nil
}

func newPassword() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// publicKey is the name of the writer at the server.
func (c credentials) publicKey() (string, error) {
	kp, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return "", fmt.Errorf("reading credentials: %w", err)
	}
	return kp.PublicKey()
}

func (c credentials) sign(nonce []byte) ([]byte, error) {
	kp, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	return kp.Sign(nonce)
}

// readCredentials fails when the file is missing or damaged.
func (d stateDir) readCredentials() (credentials, error) {
	var c credentials
	if err := readJSON(d.credentials(), &c); err != nil {
		return c, fmt.Errorf("reading credentials: %w", err)
	}
	return c, nil
}

// ensureCredentials reads the credentials, and makes them when there are none or
// they are damaged. Only the host calls it.
func (d stateDir) ensureCredentials() (credentials, error) {
	c, err := d.readCredentials()
	if err == nil {
		_, err = c.publicKey()
	}
	switch {
	case err == nil:
		return c, os.Chmod(d.credentials(), 0o600)
	case errors.Is(err, fs.ErrPermission):
		return c, err
	}
	if c, err = newCredentials(c.Port, c.Sinks); err != nil {
		return c, err
	}
	return c, d.writeCredentials(c)
}

func (d stateDir) writeCredentials(c credentials) error {
	if err := writeJSON(d.credentials(), c, true); err != nil {
		return fmt.Errorf("writing credentials: %w", err)
	}
	return nil
}
