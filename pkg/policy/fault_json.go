package policy

import "encoding/json"

// MarshalJSON gives what Error says, in parts: file, line and column (from 1; 0 for the whole file), message, hint, source, and how many characters of
// source stand before the place meant.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		File    string `json:"file"`
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
		Source  string `json:"source,omitempty"`
		Caret   int    `json:"caret,omitempty"`
	}{f.Pos.File, f.Pos.Line, f.Pos.Column, f.Message, f.Hint, f.Source, f.caret})
}
