package producers

// redactor replaces secret values in a stream of bytes. It is for one goroutine.
type redactor struct{}

// newRedactor returns a redactor of the secrets; see [Config.secrets].
func newRedactor(secrets []string) *redactor { return &redactor{} }

// Write takes the next bytes and returns those that are safe to show so far.
// The result may alias p, and is valid until the next call.
func (r *redactor) Write(p []byte) []byte { return p }

// Flush returns what was held back, at the end of the stream.
func (r *redactor) Flush() []byte { return nil }

// redact is the text with the secrets replaced.
func redact(secrets []string, text string) string { return text }
