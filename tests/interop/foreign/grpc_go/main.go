// RocketMQ's Go client (gRPC): commands as JSON lines in, answers out; see ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	await        = 5 * time.Second
	lineBytesMax = 64 << 20
)

type body struct {
	Body       string            `json:"body"`
	Size       int               `json:"size"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Group      string            `json:"group"`
	DeliverAt  int64             `json:"deliverAt"`
	Properties map[string]string `json:"properties"`
}

type request struct {
	ID         int    `json:"id"`
	Op         string `json:"op"`
	Endpoints  string `json:"endpoints"`
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Consumer   string `json:"consumer"`
	AccessKey  string `json:"accessKey"`
	SecretKey  string `json:"secretKey"`
	Messages   []body `json:"messages"`
	Body       string `json:"body"`
	How        string `json:"how"`
	Handle     string `json:"handle"`
	Expression string `json:"expression"`
	SQL        string `json:"sql"`
	Invisible  int    `json:"invisible"`
	Most       int32  `json:"most"`
	Hide       int    `json:"hide"`
	Keep       bool   `json:"keep"`
	FailFirst  bool   `json:"failFirst"`
	FailAlways bool   `json:"failAlways"`
}

type shown struct {
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	ID         string            `json:"id"`
	Group      string            `json:"group"`
	Properties map[string]string `json:"properties"`
	Attempt    int32             `json:"attempt"`
}

type consumer struct {
	simple rocketmq.SimpleConsumer
	stop   func() error
	kept   []*rocketmq.MessageView
	lock   sync.Mutex
	got    []shown
	failed map[string]bool
}

var (
	producers = map[string]rocketmq.Producer{}
	consumers = map[string]*consumer{}
)

func configuration(asked *request) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint:      asked.Endpoints,
		ConsumerGroup: asked.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: asked.AccessKey, AccessSecret: asked.SecretKey},
	}
}

func producerOf(asked *request) (rocketmq.Producer, error) {
	key := asked.Endpoints + " " + asked.Topic + " " + asked.AccessKey + " " + asked.SecretKey
	if found, ok := producers[key]; ok {
		return found, nil
	}
	checker := &rocketmq.TransactionChecker{
		Check: func(*rocketmq.MessageView) rocketmq.TransactionResolution { return rocketmq.COMMIT },
	}
	made, err := rocketmq.NewProducer(
		configuration(asked), rocketmq.WithTopics(asked.Topic), rocketmq.WithTransactionChecker(checker))
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	producers[key] = made
	return made, nil
}

func messageOf(asked *request, each *body) *rocketmq.Message {
	message := &rocketmq.Message{Topic: asked.Topic, Body: []byte(each.Body)}
	if each.Size > 0 {
		message.Body = make([]byte, each.Size)
	}
	if each.Tag != "" {
		message.SetTag(each.Tag)
	}
	if len(each.Keys) > 0 {
		message.SetKeys(each.Keys...)
	}
	if each.Group != "" {
		message.SetMessageGroup(each.Group)
	}
	if each.DeliverAt > 0 {
		message.SetDelayTimestamp(time.Unix(each.DeliverAt, 0))
	}
	for name, value := range each.Properties {
		message.AddProperty(name, value)
	}
	return message
}

func send(asked *request) (any, error) {
	producer, err := producerOf(asked)
	if err != nil {
		return nil, err
	}
	receipts := []map[string]string{}
	for index := range asked.Messages {
		sent, err := producer.Send(context.Background(), messageOf(asked, &asked.Messages[index]))
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, map[string]string{"id": sent[0].MessageID, "recallHandle": sent[0].RecallHandle})
	}
	return receipts, nil
}

func transact(asked *request) (any, error) {
	producer, err := producerOf(asked)
	if err != nil {
		return nil, err
	}
	transaction := producer.BeginTransaction()
	message := messageOf(asked, &body{Body: asked.Body})
	sent, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	switch asked.How {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return sent[0].MessageID, err
}

func recall(asked *request) (any, error) {
	producer, err := producerOf(asked)
	if err != nil {
		return nil, err
	}
	return producer.Recall(context.Background(), asked.Topic, asked.Handle)
}

func subscriptions(asked *request) map[string]*rocketmq.FilterExpression {
	expression := rocketmq.SUB_ALL
	if asked.SQL != "" {
		expression = rocketmq.NewFilterExpressionWithType(asked.SQL, rocketmq.SQL92)
	} else if asked.Expression != "" {
		expression = rocketmq.NewFilterExpression(asked.Expression)
	}
	return map[string]*rocketmq.FilterExpression{asked.Topic: expression}
}

func show(message *rocketmq.MessageView) shown {
	found := shown{
		Body:       string(message.GetBody()),
		Keys:       append([]string{}, message.GetKeys()...),
		ID:         message.GetMessageId(),
		Properties: message.GetProperties(),
		Attempt:    message.GetDeliveryAttempt(),
	}
	sort.Strings(found.Keys)
	if tag := message.GetTag(); tag != nil {
		found.Tag = *tag
	}
	if group := message.GetMessageGroup(); group != nil {
		found.Group = *group
	}
	if found.Properties == nil {
		found.Properties = map[string]string{}
	}
	return found
}

func subscribe(asked *request) (any, error) {
	simple, err := rocketmq.NewSimpleConsumer(configuration(asked),
		rocketmq.WithSimpleAwaitDuration(await), rocketmq.WithSimpleSubscriptionExpressions(subscriptions(asked)))
	if err != nil {
		return nil, err
	}
	if err := simple.Start(); err != nil {
		return nil, err
	}
	consumers[asked.Consumer] = &consumer{simple: simple, stop: simple.GracefulStop}
	return nil, nil
}

// receive does one receive; each message is acknowledged, or hidden for `hide` seconds, or kept for `settle`.
func receive(asked *request) (any, error) {
	from := consumers[asked.Consumer]
	most, invisible := asked.Most, asked.Invisible
	if most == 0 {
		most = 32
	}
	if invisible == 0 {
		invisible = 30
	}
	found, err := from.simple.Receive(context.Background(), most, time.Duration(invisible)*time.Second)
	if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.GetCode() == 40401 {
		return []shown{}, nil // this client makes an error of "nothing there"
	}
	if err != nil {
		return nil, err
	}
	all := []shown{}
	for _, message := range found {
		all = append(all, show(message))
		switch {
		case asked.Hide > 0:
			err = from.simple.ChangeInvisibleDuration(message, time.Duration(asked.Hide)*time.Second)
		case asked.Keep:
			from.kept = append(from.kept, message)
		default:
			err = from.simple.Ack(context.Background(), message)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func settle(asked *request) (any, error) {
	from := consumers[asked.Consumer]
	kept := from.kept
	from.kept = nil
	for _, message := range kept {
		if err := from.simple.Ack(context.Background(), message); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// forge acknowledges what is kept with another handle.
func forge(asked *request) (any, error) {
	for _, message := range consumers[asked.Consumer].kept {
		message.ReceiptHandle = asked.Handle
	}
	return settle(asked)
}

func push(asked *request) (any, error) {
	made := &consumer{failed: map[string]bool{}}
	listener := &rocketmq.FuncMessageListener{Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		made.lock.Lock()
		defer made.lock.Unlock()
		fails := asked.FailAlways || asked.FailFirst && !made.failed[message.GetMessageId()]
		made.failed[message.GetMessageId()] = true
		if asked.FailAlways || !fails {
			made.got = append(made.got, show(message))
		}
		if fails {
			return rocketmq.FAILURE
		}
		return rocketmq.SUCCESS
	}}
	running, err := rocketmq.NewPushConsumer(configuration(asked),
		rocketmq.WithPushAwaitDuration(await), rocketmq.WithPushSubscriptionExpressions(subscriptions(asked)),
		rocketmq.WithPushMessageListener(listener), rocketmq.WithPushConsumptionThreadCount(4))
	if err != nil {
		return nil, err
	}
	if err := running.Start(); err != nil {
		return nil, err
	}
	made.stop = running.GracefulStop
	consumers[asked.Consumer] = made
	return nil, nil
}

func got(asked *request) (any, error) {
	from := consumers[asked.Consumer]
	from.lock.Lock()
	defer from.lock.Unlock()
	return append([]shown{}, from.got...), nil
}

func stop(asked *request) (any, error) {
	from := consumers[asked.Consumer]
	delete(consumers, asked.Consumer)
	return nil, from.stop()
}

var operations = map[string]func(*request) (any, error){
	"send": send, "transact": transact, "recall": recall, "subscribe": subscribe, "receive": receive,
	"settle": settle, "forge": forge, "push": push, "got": got, "stop": stop,
}

func answer(line []byte) map[string]any {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]any{"id": 0, "error": err.Error()}
	}
	operation, ok := operations[asked.Op]
	if !ok {
		return map[string]any{"id": asked.ID, "error": "no operation " + asked.Op}
	}
	result, err := operation(&asked)
	if err == nil {
		return map[string]any{"id": asked.ID, "result": result}
	}
	failed := map[string]any{"id": asked.ID, "error": err.Error()}
	if status, ok := rocketmq.AsErrRpcStatus(err); ok {
		failed["code"] = status.GetCode()
	}
	return failed
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		text, err := json.Marshal(answer(lines.Bytes()))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text)) // its first name is one of "code", "error", "id"
	}
}
