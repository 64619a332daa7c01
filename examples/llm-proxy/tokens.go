package main

import (
	"encoding/json"
	"errors"
)

// call is what the proxy reads of a request.
type call struct {
	Model               string `json:"model"`
	MaxTokens           *int64 `json:"max_tokens"`
	MaxCompletionTokens *int64 `json:"max_completion_tokens"` // the newer name
	Stream              bool   `json:"stream"`
}

const (
	bytesPerToken     = 4   // as a rule, of English text
	usualAnswerTokens = 500 // where the request sets no bound
)

func parseCall(body []byte) (call, error) {
	var c call
	if err := json.Unmarshal(body, &c); err != nil {
		return c, errors.New("the body must be a JSON object with a model")
	}
	if c.MaxTokens == nil {
		c.MaxTokens = c.MaxCompletionTokens
	}
	switch {
	case c.Model == "":
		return c, errors.New("model is missing")
	case c.MaxTokens != nil && *c.MaxTokens < 1:
		return c, errors.New("max_tokens must be at least 1")
	case c.Stream:
		return c, errors.New("this proxy reads the usage at the end of an answer, and does not stream")
	}
	return c, nil
}

// estimate is how many tokens the call may take: its prompt, and the longest answer that it asks for.
func (c *call) estimate(body []byte) uint64 {
	answer := int64(usualAnswerTokens)
	if c.MaxTokens != nil {
		answer = *c.MaxTokens
	}
	return uint64(len(body)/bytesPerToken) + uint64(answer)
}

// usage is what an answer says that the call has taken. ok is false if it does not say.
func usage(answer []byte) (tokens uint64, ok bool) {
	var a struct {
		Usage *struct {
			TotalTokens uint64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || a.Usage == nil {
		return 0, false
	}
	return a.Usage.TotalTokens, true
}
