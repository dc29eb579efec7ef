package main

import (
	"encoding/json"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// An eventLine is an event as --json prints it.
type eventLine struct {
	Schema    int          `json:"schema"`
	Seq       uint64       `json:"seq"`
	ID        string       `json:"id"`
	Time      time.Time    `json:"time"`
	Session   string       `json:"session"`
	Owner     string       `json:"owner,omitempty"`
	Class     events.Class `json:"class"`
	Kind      events.Kind  `json:"kind"`
	Subject   string       `json:"subject"`
	Execution string       `json:"execution,omitempty"`
	Body      any          `json:"body"`
}

func jsonEvent(e events.Event) eventLine {
	line := eventLine{
		Schema: jsonSchema, Seq: e.Seq, ID: e.ID, Time: e.Time, Session: e.Session, Owner: e.Owner,
		Class: e.Class(), Kind: e.Kind(), Subject: e.Subject, Execution: e.Execution(), Body: e.Body,
	}
	if u, ok := e.Body.(events.Unknown); ok {
		line.Body = u.Data // as base64: nobody here knows what it is
		if json.Valid(u.Data) {
			line.Body = json.RawMessage(u.Data)
		}
	}
	return line
}
