package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine bounds one message from the client, in bytes.
const maxLine = 64 << 20

// errLineTooLong is a line that was skipped.
var errLineTooLong = errors.New("the message is longer than 64 MiB")

// lineReader reads messages. The last one needs no newline.
type lineReader struct {
	r *bufio.Reader
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next line that is not blank, trimmed, in a buffer of its
// own. errLineTooLong leaves the reader usable; any other error ends it.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.read()
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil {
			return line, err
		}
	}
}

func (l *lineReader) read() ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := l.r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil && tooLong:
			return nil, errLineTooLong
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil // EOF comes again on the next read.
		}
		return line, err
	}
}
