package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"
)

const (
	// greetingMost bounds a first message that is looked at, in bytes.
	greetingMost = 64 << 10
	// clientNameMost bounds a client's name, and its version, in bytes.
	clientNameMost = 100
)

// Greeting waits for the first message, and says which client sent it: its name
// and version, or nothing if it does not say. Reading goes on from rest, the
// message included; whether the client hung up can be asked of it as of in.
func Greeting(in io.Reader) (rest io.Reader, client string) {
	r := bufio.NewReaderSize(in, greetingMost)
	for {
		_, err := r.Peek(r.Buffered() + 1)
		seen, _ := r.Peek(r.Buffered())
		line, _, whole := bytes.Cut(bytes.TrimLeft(seen, " \t\r\n"), []byte("\n"))
		if whole || err != nil { // the end of the input, or of the buffer
			return greeted{r, in}, clientOf(line)
		}
	}
}

// greeted is an input of which the beginning was looked at.
type greeted struct {
	*bufio.Reader
	in io.Reader
}

// SyscallConn is that of the input, if it has one.
func (g greeted) SyscallConn() (syscall.RawConn, error) {
	c, ok := g.in.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return c.SyscallConn()
}

// clientInfo is what a client says of itself.
type clientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// clientOf is who sent the first message: by its parameters, or, where the
// client asks first which protocols there are, by its metadata.
func clientOf(line []byte) string {
	var m struct {
		Params struct {
			ClientInfo clientInfo `json:"clientInfo"`
			Meta       struct {
				ClientInfo clientInfo `json:"io.modelcontextprotocol/clientInfo"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		return ""
	}
	info := m.Params.ClientInfo
	if info.Name == "" {
		info = m.Params.Meta.ClientInfo
	}
	name := strings.Join(strings.Fields(shorten(info.Name, clientNameMost)), " ")
	if name == "" {
		return ""
	}
	// One word of version, whatever it is, so that the name can be told from it.
	version := strings.Join(strings.Fields(shorten(info.Version, clientNameMost)), "-")
	if version == "" {
		version = "-"
	}
	return name + " " + version
}
