//go:build unix

package examples

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a command and what it starts into a process group.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func endGroup(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
