package main

import "github.com/yieldlog/yieldlog/events"

// An ownerPath is the owner that a flag or argument names.
type ownerPath string

// Set implements pflag.Value.
func (o *ownerPath) Set(name string) error {
	owner, err := events.OwnerPath(name)
	*o = ownerPath(owner)
	return err
}

func (o *ownerPath) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *ownerPath) Type() string { return "string" }
