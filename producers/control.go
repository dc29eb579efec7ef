package producers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// A controlRequest asks the process of a session to do something that only its
// one writer may do. Requests may arrive twice, and bear it.
type controlRequest struct {
	// Op is stop, stop_owner, pruned, rewind or stats; or of a sink's process lend,
	// unlend or lendable.
	Op         string         `json:"op"`
	Execution  string         `json:"execution,omitempty"`
	Owner      string         `json:"owner,omitempty"`
	Signal     string         `json:"signal,omitempty"`
	ForceAfter time.Duration  `json:"force_after_ns,omitempty"`
	Pruned     *events.Pruned `json:"pruned,omitempty"`
	To         uint64         `json:"to,omitempty"`
	// Most bounds what is lent, and Take numbers the request; to return one
	// record it is the lease, and Seq its sequence.
	Most int           `json:"most,omitempty"`
	Take uint64        `json:"take,omitempty"`
	Seq  uint64        `json:"seq,omitempty"`
	Wait time.Duration `json:"wait_ns,omitempty"`
}

type controlAnswer struct {
	Stop  StopResult    `json:"stop"`
	Stats *ledger.Stats `json:"stats,omitempty"`
	Lent  []Lent        `json:"lent,omitempty"`
	// Error is the text, and Code which of the package's errors it is.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
}

// controlCodes are the errors that keep their identity on the way.
var controlCodes = map[string]error{
	"unknown": ErrUnknown, "ended": ErrEnded, "closed": ErrClosed, "signal": ErrSignal, "busy": ErrBusy,
}

// control answers a request from another process. People see all owners.
func (s *Session) control(ctx context.Context, req []byte) []byte {
	var r controlRequest
	var a controlAnswer
	err := json.Unmarshal(req, &r)
	switch {
	case err != nil:
	case r.Op == "stats":
		stats := s.ledger.Stats()
		a.Stats = &stats
	case r.Op == "lend":
		a.Lent = s.mail.lend(ctx, r.Owner, r.Most, r.Take)
	case r.Op == "unlend":
		s.mail.loans.hear(ledger.SinkAck{Owner: r.Owner, Seq: r.Seq, Lease: r.Take, Verb: ledger.AckNobody, Answer: func() {}})
	case r.Op == "lendable":
		ctx, cancel := context.WithTimeout(ctx, r.Wait)
		s.mail.ready(ctx, r.Owner)
		cancel()
	default:
		a.Stop, err = s.obey(ctx, r)
	}
	if err != nil {
		a.Error = err.Error()
		for code, target := range controlCodes {
			if errors.Is(err, target) {
				a.Code = code
			}
		}
	}
	answer, err := json.Marshal(a)
	if err != nil {
		return nil // strings and numbers always encode
	}
	return answer
}

func (s *Session) obey(ctx context.Context, r controlRequest) (StopResult, error) {
	switch r.Op {
	case "stop":
		s.mu.Lock()
		e := s.executions[r.Execution]
		s.mu.Unlock()
		if e == nil {
			return StopResult{}, &UnknownError{Execution: r.Execution}
		}
		return e.stop(ctx, StopOptions{Signal: r.Signal, ForceAfter: r.ForceAfter}, events.TermStopped)
	case "stop_owner":
		_, err := s.StopOwner(ctx, r.Owner)
		return StopResult{}, err
	case "pruned":
		if r.Pruned == nil {
			return StopResult{}, errors.New("pruned says nothing")
		}
		_, err := s.ledger.Append(ctx, s.event(r.Owner, r.Execution, *r.Pruned))
		return StopResult{}, err
	case "rewind":
		return StopResult{}, s.rewind(ctx, r.To)
	}
	return StopResult{}, fmt.Errorf("unknown request %q", r.Op)
}

// ask sends a request to the process of a session.
func ask(ctx context.Context, l *ledger.Ledger, session string, r controlRequest) (controlAnswer, error) {
	req, err := json.Marshal(r)
	if err != nil {
		return controlAnswer{}, fmt.Errorf("asking session %s: %w", session, err)
	}
	answer, err := l.Ask(ctx, session, req)
	if err != nil {
		return controlAnswer{}, err
	}
	var a controlAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return a, fmt.Errorf("reading the answer of session %s: %w", session, err)
	}
	if a.Error == "" {
		return a, nil
	}
	if a.Code == "unknown" {
		return a, &UnknownError{Execution: r.Execution}
	}
	if target, ok := controlCodes[a.Code]; ok {
		return a, target
	}
	return a, errors.New(a.Error)
}

// AskStats asks how the appends of a session's process go. The error is
// [ledger.ErrNoSession] when that does not live.
func AskStats(ctx context.Context, l *ledger.Ledger, session string) (ledger.Stats, error) {
	a, err := ask(ctx, l, session, controlRequest{Op: "stats"})
	if err == nil && a.Stats == nil {
		err = fmt.Errorf("session %s does not tell", session)
	}
	if err != nil {
		return ledger.Stats{}, err
	}
	return *a.Stats, nil
}

// AskStop stops an execution of another process's session, whoever owns it, and
// returns once it is settled. The error is [ledger.ErrNoSession] when the
// session's process does not live.
func AskStop(ctx context.Context, l *ledger.Ledger, session, execution string, o StopOptions) (StopResult, error) {
	a, err := ask(ctx, l, session, controlRequest{Op: "stop", Execution: execution, Signal: o.Signal, ForceAfter: o.ForceAfter})
	return a.Stop, err
}

// AskStopOwner stops the executions of one owner in another process's session.
func AskStopOwner(ctx context.Context, l *ledger.Ledger, session, owner string) error {
	_, err := ask(ctx, l, session, controlRequest{Op: "stop_owner", Owner: owner})
	return err
}

// NotePruned records that output of an execution was deleted: by the session's
// process while it lives, and otherwise by this one under the session's claim,
// so that a session has one writer at a time.
func NotePruned(ctx context.Context, l *ledger.Ledger, session, owner, execution string, p events.Pruned) error {
	_, err := ask(ctx, l, session, controlRequest{Op: "pruned", Owner: owner, Execution: execution, Pruned: &p})
	if !errors.Is(err, ledger.ErrNoSession) {
		return err
	}
	switch err := appendDead(ctx, l, events.Event{Session: session, Owner: owner, Subject: execution, Body: p}); {
	case errors.Is(err, ledger.ErrLive): // a sink has half a minute
		return fmt.Errorf("the ended session %s has mail that somebody is just taking; prune again in a minute: %w", session, err)
	case err != nil:
		return fmt.Errorf("noting what was pruned: %w", err)
	}
	return nil
}
