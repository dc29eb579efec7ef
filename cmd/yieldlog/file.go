package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeFile writes to a file, for the user only, that is there once it is whole,
// or to standard output for "-". What is no plain file, such as a pipe, takes the
// bytes as they come.
func (a *app) writeFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(a.out)
	}
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".yieldlog-*")
	if err != nil {
		if failed := new(os.PathError); errors.As(err, &failed) {
			err = failed.Err // the name in it means nothing to anybody
		}
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
