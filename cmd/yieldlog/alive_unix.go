//go:build unix

package main

import "syscall"

// alive reports whether a process exists. Nothing else may use its number.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
