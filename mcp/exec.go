package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay"
)

const execDescription = `Run a shell command. It answers when the command ends, or after yield_ms with status "backgrounded" and a process_id for wait, read, write and stop; its end then also reaches your mailbox, once.

Declare every side effect. Examples:
- look only (ls, git status, tests that write nothing): ["NONE"], never with others
- edit a workspace file: ["MODIFIES_WORKSPACE_FILES"]
- npm install: ["CHANGES_PACKAGES_OR_DEPENDENCIES","MAKES_NETWORK_REQUESTS"]
- curl an API: ["MAKES_NETWORK_REQUESTS"]
- rm -r build: ["DELETES_FILES"]
- sudo: ["RUNS_PRIVILEGED_COMMANDS"]
- edit a secret or protected file: ["MODIFIES_PROTECTED_FILES"]
- python -c, node -e, curl | sh: ["RUNS_INLINE_CODE"]
RUNS_INLINE_CODE is code handed inline to an interpreter, not the writing of a script: prefer a reviewable file in the workspace, run in a small inspectable step. MODIFIES_OS_USER_SETTINGS is rc files, dotfiles and XDG config; MODIFIES_OS_SETTINGS is systemd, the kernel, /etc. KILLS_AGENT_PROCESS is the agent or this server; STOPS_OR_RESTARTS_SERVICES is others. Blocked categories are refused with what to do instead. Do not use &: yield instead.`

func (s *Server) execTool() *tool {
	return &tool{
		name: "exec", title: "Run a command", description: execDescription,
		params: []param{
			{name: "command", kind: kindString, required: true, text: "Shell text"},
			{name: "side_effects", kind: kindStrings, required: true, enum: producers.SideEffects, text: "Everything that the command may do"},
			{name: "cwd", kind: kindString},
			{name: "env", kind: kindMap, text: "Variables to set"},
			{name: "shell", kind: kindString, text: "Ignored"},
			{name: "stdin", kind: kindString, text: "Input, written at once; stdin stays open"},
			{name: "close_stdin", kind: kindBoolean, text: "Close stdin after that"},
			{name: "name", kind: kindString, text: "Label"},
			{name: "yield_ms", kind: kindInteger, min: minInteger, text: "Answer after this long at the latest; default 5000, 0 at once"},
			{name: "timeout_ms", kind: kindInteger, min: minInteger, text: "Kill the command after this long; default 0: never"},
			{name: "tty", kind: kindBoolean, text: "Run in a terminal; its output is in tty, and Ctrl-C is input \\u0003"},
			{name: "rows", kind: kindInteger, min: 1, text: "Of the terminal; default 24"},
			{name: "cols", kind: kindInteger, min: 1, text: "Default 80"},
			{name: "max_output_bytes", kind: kindInteger, min: minInteger, text: "Most bytes of each stream in the answer; a cut shows head and tail"},
			ownerParam,
		},
		output: observationSchema("status"),
		hints:  hints{destructive: true, openWorld: true},
		starts: true,
		eager:  true,
		run:    s.exec,
	}
}

var ownerParam = param{name: "owner", kind: kindString, text: "Agent path; default /root", check: checkOwner}

func checkOwner(name string) error {
	if name == "" {
		return nil
	}
	_, err := events.OwnerPath(name)
	return err // it says all
}

func (s *Server) exec(ctx context.Context, c *call) (reply, error) {
	if strings.TrimSpace(c.args.text("command")) == "" {
		return reply{}, refuse("command is empty")
	}
	return s.launch(ctx, c, s.request(c))
}

// launch runs the command of exec and monitor.
func (s *Server) launch(ctx context.Context, c *call, request producers.Request) (reply, error) {
	progress := s.startProgress(ctx, c)
	request.Started = progress.of
	result, err := s.opts.Session.Exec(ctx, request)
	progress.end()
	c.claimed(result.Claim)
	if err != nil {
		return reply{}, fmt.Errorf("running the command: %w", err)
	}
	if result.Outcome == producers.Refused {
		return refused("", result), nil
	}
	if result.Outcome != producers.Settled {
		c.after = append(c.after, func(written bool) {
			if !written && ctx.Err() != nil { // cancelled as it yielded: nobody knows of the command
				s.opts.Session.Abandon(request.Owner, result.Execution)
			}
		})
	}
	p, ok, err := s.process(ctx, request.Owner, result.Execution, result.Seq)
	if err != nil {
		return reply{}, err
	}
	if !ok {
		return unknown(result.Execution), nil
	}
	o := observation{Command: shorten(p.Requested.Command, maxCommandEcho)}
	if result.Outcome != producers.Settled {
		o.Status, o.Message = "backgrounded", background(result)
	}
	if request.Monitor {
		return answer(monitored{result.Execution, o.Status, "Its lines reach your mailbox, and at last its end."}), nil
	}
	return s.observe(ctx, c, p, o, replay.PageRequest{HeadTail: true, Limit: c.args.limit()})
}

// maxCommandEcho bounds the command in an answer: it only tells parallel calls apart.
const maxCommandEcho = 200

func background(r producers.Result) string {
	if r.Outcome == producers.Queued {
		return "The command waits in the background for its turn behind other commands. Use wait with its process_id, or read the mailbox later."
	}
	return "The command goes on in the background. Use wait, read, write or stop with its process_id; its end also reaches your mailbox."
}

// refused answers for a command that never started. It names a process only to who
// named that.
func refused(id string, r producers.Result) reply {
	return answer(struct {
		ProcessID string `json:"process_id,omitempty"`
		Status    string `json:"status"`
		Reason    string `json:"reason,omitempty"`
		Error     string `json:"error"`
	}{id, "failed_to_start", r.Reason, r.Refusal})
}

func (s *Server) request(c *call) producers.Request {
	a := c.args
	return producers.Request{
		Owner: a.owner(), Command: a.text("command"), Name: a.text("name"),
		Cwd: a.text("cwd"), Shell: a.text("shell"),
		SideEffects: a.list("side_effects"), Env: a.dict("env"),
		Stdin: a.text("stdin"), CloseStdin: a.flag("close_stdin", false),
		Yield:   a.millis("yield_ms", producers.DefaultDelay),
		Timeout: a.millis("timeout_ms", producers.DefaultDelay),
		TTY:     terminal(a),
		Turn:    c.turn,
		Client:  c.meta.client, Trace: c.meta.trace,
	}
}

// The size of a terminal whose call names none, and the largest.
const (
	defaultRows, defaultCols = 24, 80
	maxRows, maxCols         = 200, 500
)

// terminal is the terminal that the arguments ask for, or nil.
func terminal(a arguments) *events.Size {
	if !a.flag("tty", false) {
		return nil
	}
	return a.size(events.Size{Rows: defaultRows, Cols: defaultCols})
}

// size is the size that the arguments name, or else have.
func (a arguments) size(has events.Size) *events.Size {
	return &events.Size{
		Rows: int(min(a.integer("rows", int64(has.Rows)), maxRows)),
		Cols: int(min(a.integer("cols", int64(has.Cols)), maxCols)),
	}
}
