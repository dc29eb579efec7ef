package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFileIsWholeOrNotThere(t *testing.T) {
	a, dir := &app{}, t.TempDir()
	name := filepath.Join(dir, "night.md")
	half := errors.New("in the middle")
	for _, step := range []struct {
		text string
		err  error
		want string
	}{{"the first", nil, "the first"}, {"the sec", half, "the first"}, {"the third", nil, "the third"}} {
		err := a.writeFile(name, func(w io.Writer) error {
			_, err := io.WriteString(w, step.text)
			return errors.Join(err, step.err)
		})
		if !errors.Is(err, step.err) {
			t.Errorf("writing %q: %v", step.text, err)
		}
		if got, err := os.ReadFile(name); string(got) != step.want {
			t.Errorf("after %q the file holds %q (%v)", step.text, got, err)
		}
	}
	if left, err := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("it left %v behind (%v)", left, err)
	}
	if err := a.writeFile(os.DevNull, func(io.Writer) error { return nil }); err != nil {
		t.Errorf("a device is not written to: %v", err)
	}
}
