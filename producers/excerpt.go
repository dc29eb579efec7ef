package producers

import (
	"fmt"
	"strings"

	"github.com/yieldlog/yieldlog/events"
)

// The most that the record of a refusal keeps of each part, in bytes: what was
// refused may be larger than any event.
const (
	refusedCommand = 16 << 10
	refusedText    = 1 << 10
	refusedNames   = 128
)

// excerpt is the text's first bytes, and how many it has when they are not all.
func excerpt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// excerpts are the first of the texts, each an excerpt.
func excerpts(texts []string) []string {
	kept := make([]string, 0, min(len(texts), refusedNames))
	for _, text := range texts[:cap(kept)] {
		kept = append(kept, excerpt(text, refusedText/4))
	}
	return kept
}

// refusedFact is the record of a request that was refused before it was recorded.
func (s *Session) refusedFact(r Request, no *refusal) events.Refused {
	asked := s.requested(r)
	asked.Command = excerpt(asked.Command, refusedCommand)
	for _, text := range []*string{&asked.Name, &asked.Cwd, &asked.Shell, &asked.Trace} {
		*text = excerpt(*text, refusedText)
	}
	asked.SideEffects, asked.Env = excerpts(each(asked.SideEffects, s.hide(r))), excerpts(asked.Env)
	return events.Refused{Reason: no.Reason, Message: no.Message, Request: &asked}
}
