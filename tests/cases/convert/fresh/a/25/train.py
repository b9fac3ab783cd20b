import random
import time

import torch
from torch import nn, optim
from torch.utils.data import DataLoader

from board import Board
from dates import DatePairs, to_text
from seq2seq import Seq2Seq

SEED = 6
BATCH_SIZE = 64
EPOCHS = 5
LEARNING_RATE = 5e-3
CLIP = 1.0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def init_weights(m):
    for name, param in m.named_parameters():
        if "weight" in name and param.dim() > 1:
            nn.init.xavier_uniform_(param.data)
        else:
            nn.init.constant_(param.data, 0)


def count_parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def train(model, iterator, optimizer, scheduler, criterion, clip, tf_ratio, board, step):
    model.train()
    epoch_loss = 0
    for src, trg in iterator:
        src, trg = src.to(DEVICE), trg.to(DEVICE)
        optimizer.zero_grad()
        output = model(src, trg, tf_ratio)
        loss = criterion(output.reshape(-1, output.shape[-1]), trg.reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        scheduler.step()
        board.add_scalar("train/loss", loss.item(), step)
        board.add_scalar("train/grad_norm", norm.item(), step)
        epoch_loss += loss.item()
        step += 1
    return epoch_loss / len(iterator), step


def evaluate(model, iterator, criterion):
    model.eval()
    loss, chars, exact, n = 0.0, 0, 0, 0
    with torch.no_grad():
        for src, trg in iterator:
            src, trg = src.to(DEVICE), trg.to(DEVICE)
            output = model(src)
            loss += criterion(output.reshape(-1, output.shape[-1]), trg.reshape(-1)).item()
            hit = output.argmax(2) == trg
            chars += hit.float().mean(1).sum().item()
            exact += hit.all(1).sum().item()
            n += len(src)
    return loss / len(iterator), chars / n, exact / n


def main():
    random.seed(SEED)
    torch.manual_seed(SEED)
    train_iterator = DataLoader(DatePairs(2000, 1), batch_size=BATCH_SIZE, shuffle=True)
    valid_data = DatePairs(300, 2)
    valid_iterator = DataLoader(valid_data, batch_size=BATCH_SIZE)

    model = Seq2Seq().to(DEVICE)
    model.apply(init_weights)
    print(f"The model has {count_parameters(model):,} trainable parameters")
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=EPOCHS * len(train_iterator), pct_start=0.2)
    criterion = nn.CrossEntropyLoss()
    board = Board("runs")
    best, step = float("inf"), 0
    for epoch in range(EPOCHS):
        start = time.time()
        tf_ratio = max(0.5, 1.0 - 0.12 * epoch)
        train_loss, step = train(model, train_iterator, optimizer, scheduler, criterion, CLIP, tf_ratio, board, step)
        valid_loss, char_acc, exact = evaluate(model, valid_iterator, criterion)
        if valid_loss < best:
            best = valid_loss
            torch.save(model.state_dict(), "seq2seq-model.pt")
        board.add_scalar("valid/exact", exact, step)
        print(f"Epoch: {epoch + 1:02} | Time: {time.time() - start:.1f}s | TF {tf_ratio:.2f}")
        print(f"\tTrain Loss: {train_loss:.3f}")
        print(f"\t Val. Loss: {valid_loss:.3f} | char acc {char_acc:.3f} | exact {exact:.3f}")
    model.load_state_dict(torch.load("seq2seq-model.pt", map_location=DEVICE))
    model.eval()
    for i in range(4):
        x, _ = valid_data[i]
        with torch.no_grad():
            y = to_text(model(x.unsqueeze(0).to(DEVICE)).argmax(2)[0].tolist())
        board.add_text("example", f"{valid_data.pairs[i][0]} -> {y}", step)
        print(f"{valid_data.pairs[i][0]:>20} -> {y}   ({valid_data.pairs[i][1]})")
    board.close()


if __name__ == "__main__":
    main()
